"""Faults that tests switch on, in the process and over HTTP."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from tests.integration.local.served_registry import TRAINJOBS, ServedRegistry, serve_registry, trainjob

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def served() -> Iterator[ServedRegistry]:
    with serve_registry() as opened:
        yield opened


def test_the_error_is_sent_to_the_given_number_of_matching_requests(served: ServedRegistry) -> None:
    served.server.faults.answer(429, 2, verb="list", resource="trainjobs", retry_after=3)
    for _ in range(2):
        response = served.request("GET", TRAINJOBS)
        assert (response.code, response.headers["retry-after"]) == (429, "3")
        assert response.json["reason"] == "TooManyRequests"
        assert response.json["details"] == {"retryAfterSeconds": 3}
        assert served.request("GET", CONFIGMAPS).code == 200
        assert served.request("GET", f"{TRAINJOBS}/a").code == 404
    assert served.request("GET", TRAINJOBS).code == 200


@pytest.mark.parametrize(
    ("code", "reason"), [(401, "Unauthorized"), (500, "InternalError"), (503, "ServiceUnavailable"), (410, "Expired")]
)
def test_errors_reach_the_client(served: ServedRegistry, code: int, reason: str) -> None:
    served.server.faults.answer(code)
    with pytest.raises(ApiException) as raised:
        client.CoreV1Api(served.create_client()).list_namespaced_pod("default")
    assert raised.value.status == code
    assert f'"reason":"{reason}"' in raised.value.body
    assert served.request("GET", CONFIGMAPS).code == 200


def test_an_executed_request_loses_only_its_response(served: ServedRegistry) -> None:
    served.server.faults.answer(504, verb="create", resource="trainjobs", executed=True)
    assert served.request("POST", TRAINJOBS, trainjob("a")).code == 504
    assert served.request("POST", TRAINJOBS, trainjob("a")).code == 409


def test_an_error_for_a_subresource_does_not_match_the_resource(served: ServedRegistry) -> None:
    served.server.faults.answer(500, resource="pods/log")
    assert served.request("GET", "/api/v1/namespaces/default/pods/p").code == 404
    assert served.request("GET", "/api/v1/namespaces/default/pods/p/log").code == 500


def test_latency_delays_each_request_until_it_is_cleared(served: ServedRegistry) -> None:
    served.server.faults.latency = 0.3
    start = time.monotonic()
    served.request("GET", CONFIGMAPS)
    assert time.monotonic() - start >= 0.3
    served.server.faults.latency = 3600.0
    served.server.faults.clear()
    assert served.request("GET", CONFIGMAPS).code == 200


def test_only_the_next_watch_expires(served: ServedRegistry) -> None:
    version = served.registry.store.version
    served.server.faults.expire_watches(1)
    path = f"{CONFIGMAPS}?watch=1&resourceVersion={version}&timeoutSeconds=1"
    (event,) = served.watch_events(path)
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    assert served.watch_events(path) == []


def test_faults_can_be_switched_over_http(served: ServedRegistry) -> None:
    wanted = {"latency": 0.01, "error": {"code": 503, "times": 2, "verb": "get"}, "expire_watches": 1}
    shown = served.request("POST", "/faults", wanted).json
    assert shown["latency"] == 0.01
    assert (shown["errors"][0]["code"], shown["errors"][0]["times"], shown["expire_watches"]) == (503, 2, 1)
    assert served.request("GET", f"{CONFIGMAPS}/a").code == 503
    assert served.request("GET", "/faults").json["errors"][0]["times"] == 1
    assert served.request("DELETE", "/faults").json == {"latency": 0.0, "errors": [], "expire_watches": 0}
    assert served.request("GET", f"{CONFIGMAPS}/a").code == 404
    with served.open_request("GET", f"{CONFIGMAPS}?watch=1") as response:
        served.request("POST", "/faults", {"drop_watches": True})
        with pytest.raises(http.client.IncompleteRead):
            response.read()


@pytest.mark.parametrize("wanted", [[], {"bogus": 1}, {"error": {"status": 1}}, {"latency": "x"}, {"error": 3}])
def test_a_body_that_is_not_valid_changes_no_fault(served: ServedRegistry, wanted: object) -> None:
    assert served.request("POST", "/faults", wanted).code == 400
    assert served.request("GET", "/faults").json == {"latency": 0.0, "errors": [], "expire_watches": 0}


def test_only_the_administrator_may_switch_faults(served: ServedRegistry) -> None:
    assert served.request("POST", "/faults", {"latency": 1}, token="").code == 403
    assert served.request("POST", "/faults", {"latency": 1}, token="wrong").code == 401
    assert served.server.faults.latency == 0.0
