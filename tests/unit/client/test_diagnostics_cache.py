"""What all who look for a reason read together: how often it is asked for, and whose it is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from trainjob.client.diagnostics_cache import DiagnosticsCache
from trainjob.errors import NotFound, PermissionDenied, ServerUnavailable


class FakeHttpClient:
    """Answers lists, and counts the questions."""

    def __init__(self, responses):
        self.responses, self.requested_paths = responses, []

    def request(self, _method, path, **_more):
        self.requested_paths.append(path)
        answer = self.responses[path]
        if isinstance(answer, Exception):
            raise answer
        return answer


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


def test_a_job_finds_what_is_about_it_without_looking_at_others():
    server = FakeHttpClient(
        {
            EVENTS: list_response(
                event("tune-node-0-0-x"), event("tune"), event("tuner-node-0-0-x"), event("a"), event("")
            )
        }
    )
    found = DiagnosticsCache(server.request).get_warnings("ml")
    assert [one["involvedObject"]["name"] for one in found["tune"]] == ["tune-node-0-0-x", "tune"]
    assert [one["involvedObject"]["name"] for one in found["tune-node-0"]] == ["tune-node-0-0-x"]
    assert "nobody" not in found


def test_a_thousand_who_look_ask_once():
    server = FakeHttpClient({EVENTS: list_response(event("tune"))})
    evidence = DiagnosticsCache(server.request)
    with ThreadPoolExecutor(8) as pool:
        assert len({len(found["tune"]) for found in pool.map(evidence.get_warnings, ["ml"] * 1000)}) == 1
    assert server.requested_paths == [EVENTS]


def test_the_workload_of_a_job_is_found_by_its_uid():
    server = FakeHttpClient({KUEUE: GROUP, WORKLOADS: list_response(workload("QuotaReserved", "False"))})
    evidence = DiagnosticsCache(server.request)
    assert [evidence.get_workload("u1", "ml") for _ in range(100)] == [workload("QuotaReserved", "False")] * 100
    assert server.requested_paths == [KUEUE, WORKLOADS]


def test_a_workload_that_is_not_known_or_tells_nothing_is_read_alone():
    """It may be younger than what is known, or have lost its quota since."""
    server = FakeHttpClient({KUEUE: GROUP, WORKLOADS: list_response()})
    evidence = DiagnosticsCache(server.request)
    assert evidence.get_workload("u1", "ml") == {}
    server.responses[WORKLOADS] = list_response(workload("Evicted", "True"))
    assert evidence.get_workload("u1", "ml") == workload("Evicted", "True")
    admitted = FakeHttpClient({KUEUE: GROUP, WORKLOADS: list_response(workload("QuotaReserved", "True"))})
    evidence = DiagnosticsCache(admitted.request)
    assert evidence.get_workload("u1", "ml") == workload("QuotaReserved", "True")
    assert admitted.requested_paths == [KUEUE, WORKLOADS, WORKLOADS]


@pytest.mark.parametrize("error", [NotFound("no Kueue"), PermissionDenied("may not list workloads")])
def test_who_has_no_kueue_or_may_not_look_asks_once_and_knows_nothing(error):
    server = FakeHttpClient({KUEUE: error})
    evidence = DiagnosticsCache(server.request)
    assert [evidence.get_workload("u1", "ml") for _ in range(100)] == [None] * 100
    assert len(server.requested_paths) == 1


def test_who_may_not_look_at_events_asks_once_too():
    server = FakeHttpClient({EVENTS: PermissionDenied("may not list events")})
    evidence = DiagnosticsCache(server.request)
    assert [evidence.get_warnings("ml") for _ in range(100)] == [{}] * 100
    assert server.requested_paths == [EVENTS]


def test_an_outage_is_an_error_and_not_nothing():
    evidence = DiagnosticsCache(FakeHttpClient({EVENTS: ServerUnavailable("busy")}).request)
    with pytest.raises(ServerUnavailable):
        evidence.get_warnings("ml")
