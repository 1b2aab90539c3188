"""Tests of the shared cache of Warning events and Kueue Workloads: its requests and its results."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from trainjob.client.diagnostics_cache import DiagnosticsCache
from trainjob.errors import NotFound, PermissionDenied, ServerUnavailable


class FakeHttpClient:
    """Client that returns prepared responses and records the requested paths."""

    def __init__(self, responses):
        self.responses, self.requested_paths = responses, []

    def request(self, _method, path, **_more):
        self.requested_paths.append(path)
        response = self.responses[path]
        if isinstance(response, Exception):
            raise response
        return response


def list_response(*items):
    return {"metadata": {"resourceVersion": "1"}, "items": list(items)}


def event(name):
    about = {"kind": "Pod", "name": name}
    return {"metadata": {"name": f"{name}.1", "uid": "e"}, "involvedObject": about, "reason": "Failed"}


EVENTS = "/api/v1/namespaces/ml/events"
KUEUE, WORKLOADS = "/apis/kueue.x-k8s.io", "/apis/kueue.x-k8s.io/v1beta2/namespaces/ml/workloads"


GROUP = {"preferredVersion": {"groupVersion": "kueue.x-k8s.io/v1beta2"}}


def workload(condition, status):
    meta = {"name": "w", "uid": "w1", "labels": {"kueue.x-k8s.io/job-uid": "u1"}}
    return {"metadata": meta, "status": {"conditions": [{"type": condition, "status": status}]}}


def test_the_events_of_a_job_are_found_by_the_prefix_of_their_object():
    server = FakeHttpClient(
        {
            EVENTS: list_response(
                event("tune-node-0-0-x"), event("tune"), event("tuner-node-0-0-x"), event("a"), event("")
            )
        }
    )
    found = DiagnosticsCache(server.request).get_warnings("ml")
    assert [each["involvedObject"]["name"] for each in found["tune"]] == ["tune-node-0-0-x", "tune"]
    assert [each["involvedObject"]["name"] for each in found["tune-node-0"]] == ["tune-node-0-0-x"]
    assert "other" not in found


def test_a_thousand_waiters_send_one_request():
    server = FakeHttpClient({EVENTS: list_response(event("tune"))})
    cache = DiagnosticsCache(server.request)
    with ThreadPoolExecutor(8) as pool:
        assert len({len(found["tune"]) for found in pool.map(cache.get_warnings, ["ml"] * 1000)}) == 1
    assert server.requested_paths == [EVENTS]


def test_the_workload_of_a_job_is_found_by_its_uid():
    server = FakeHttpClient({KUEUE: GROUP, WORKLOADS: list_response(workload("QuotaReserved", "False"))})
    cache = DiagnosticsCache(server.request)
    assert [cache.get_workload("u1", "ml") for _ in range(100)] == [workload("QuotaReserved", "False")] * 100
    assert server.requested_paths == [KUEUE, WORKLOADS]


def test_a_workload_that_is_not_cached_or_has_no_reason_is_read_again():
    """The Workload may be newer than the cache, or have lost its quota since."""
    server = FakeHttpClient({KUEUE: GROUP, WORKLOADS: list_response()})
    cache = DiagnosticsCache(server.request)
    assert cache.get_workload("u1", "ml") == {}
    server.responses[WORKLOADS] = list_response(workload("Evicted", "True"))
    assert cache.get_workload("u1", "ml") == workload("Evicted", "True")
    admitted = FakeHttpClient({KUEUE: GROUP, WORKLOADS: list_response(workload("QuotaReserved", "True"))})
    cache = DiagnosticsCache(admitted.request)
    assert cache.get_workload("u1", "ml") == workload("QuotaReserved", "True")
    assert admitted.requested_paths == [KUEUE, WORKLOADS, WORKLOADS]


@pytest.mark.parametrize("error", [NotFound("no Kueue"), PermissionDenied("may not list workloads")])
def test_without_kueue_or_its_permission_one_request_is_sent_and_there_is_no_workload(error):
    server = FakeHttpClient({KUEUE: error})
    cache = DiagnosticsCache(server.request)
    assert [cache.get_workload("u1", "ml") for _ in range(100)] == [None] * 100
    assert len(server.requested_paths) == 1


def test_without_the_permission_to_list_events_one_request_is_sent():
    server = FakeHttpClient({EVENTS: PermissionDenied("may not list events")})
    cache = DiagnosticsCache(server.request)
    assert [cache.get_warnings("ml") for _ in range(100)] == [{}] * 100
    assert server.requested_paths == [EVENTS]


def test_an_outage_raises_an_error():
    cache = DiagnosticsCache(FakeHttpClient({EVENTS: ServerUnavailable("busy")}).request)
    with pytest.raises(ServerUnavailable):
        cache.get_warnings("ml")
