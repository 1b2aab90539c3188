"""Tests of the memory of accepted requests."""

from __future__ import annotations

import pytest

from trainjob.client.accepted_requests import AcceptedRequests, kind_of_request
from trainjob.errors import Conflict, NotFound, PermissionDenied, ServerUnavailable, Unauthorized

JOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/a/trainjobs"
PODS = "/api/v1/namespaces/a/pods"


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("GET", JOBS, ("GET", JOBS)),
        ("GET", f"{JOBS}/tune", ("GET", f"{JOBS}/*")),
        ("PATCH", f"{JOBS}/tune", ("PATCH", f"{JOBS}/*")),
        ("GET", f"{PODS}/p/log", ("GET", f"{PODS}/*/log")),
        ("GET", PODS, ("GET", PODS)),
        ("GET", "/api/v1/namespaces", ("GET", "/api/v1/namespaces")),
        ("GET", "/apis/storage.k8s.io/v1/storageclasses/fast", ("GET", "/apis/storage.k8s.io/v1/storageclasses/*")),
        ("GET", "/openapi/v3/apis/a/v1", ("GET", "/openapi/v3/apis/a/v1")),
        ("GET", "/version", ("GET", "/version")),
    ],
)
def test_the_kind_of_a_request_has_no_object_name(method, path, kind):
    assert kind_of_request(method, path) == kind


def test_a_watch_is_not_a_list():
    assert kind_of_request("GET", PODS, watch=True) != kind_of_request("GET", PODS)


@pytest.mark.parametrize("error", [NotFound("no such object"), Conflict("it exists")])
def test_404_and_409_show_that_the_request_was_accepted(error):
    accepted, kind, denied = AcceptedRequests(), kind_of_request("GET", PODS), PermissionDenied("no")
    accepted.record_error(error, kind)
    accepted.record_error(denied, kind)
    assert denied.worked_before


def test_an_outage_shows_nothing():
    accepted, kind, refused = AcceptedRequests(), kind_of_request("GET", PODS), Unauthorized("no")
    accepted.record_error(ServerUnavailable("later"), kind)
    accepted.record_error(refused, kind)
    assert not refused.worked_before


def test_a_401_is_temporary_for_a_minute_after_the_first_one():
    """After that it is permanent until the credentials are accepted again, or are not refused for a minute."""
    times = iter([100.0, 130.0, 161.0, 190.0, 200.0, 300.0])
    accepted, kind = AcceptedRequests(clock=lambda: next(times)), kind_of_request("GET", PODS)
    accepted.add(kind)

    def is_temporary():
        refused = Unauthorized("no")
        accepted.record_error(refused, kind)
        return refused.worked_before

    assert [is_temporary() for _ in range(4)] == [True, True, False, False]
    accepted.add(kind)
    assert is_temporary()
    assert is_temporary()


def test_a_403_of_another_verb_or_namespace_is_permanent():
    accepted = AcceptedRequests()
    accepted.add(kind_of_request("GET", PODS))
    for kind in [kind_of_request("DELETE", f"{PODS}/p"), kind_of_request("GET", PODS.replace("/a/", "/b/"))]:
        denied = PermissionDenied("no")
        accepted.record_error(denied, kind)
        assert denied.permanent
