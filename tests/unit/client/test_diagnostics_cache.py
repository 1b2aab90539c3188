"""What all who look for a reason read together: how often it is asked for, and whose it is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from trainjob.client.diagnostics_cache import DiagnosticsCache
from trainjob.errors import NotFound, PermissionDenied, ServerUnavailable


class Server:
    """Answers lists, and counts the questions."""

    def __init__(self, answers):
        self.answers, self.asked = answers, []

    def ask(self, _method, path, **_more):
        self.asked.append(path)
        answer = self.answers[path]
        if isinstance(answer, Exception):
            raise answer
        return answer


def listed(*items):
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
    server = Server(
        {EVENTS: listed(event("tune-node-0-0-x"), event("tune"), event("tuner-node-0-0-x"), event("a"), event(""))}
    )
    found = DiagnosticsCache(server.ask).warnings("ml")
    assert [one["involvedObject"]["name"] for one in found["tune"]] == ["tune-node-0-0-x", "tune"]
    assert [one["involvedObject"]["name"] for one in found["tune-node-0"]] == ["tune-node-0-0-x"]
    assert "nobody" not in found


def test_a_thousand_who_look_ask_once():
    server = Server({EVENTS: listed(event("tune"))})
    evidence = DiagnosticsCache(server.ask)
    with ThreadPoolExecutor(8) as pool:
        assert len({len(found["tune"]) for found in pool.map(evidence.warnings, ["ml"] * 1000)}) == 1
    assert server.asked == [EVENTS]


def test_the_workload_of_a_job_is_found_by_its_uid():
    server = Server({KUEUE: GROUP, WORKLOADS: listed(workload("QuotaReserved", "False"))})
    evidence = DiagnosticsCache(server.ask)
    assert [evidence.workload("u1", "ml") for _ in range(100)] == [workload("QuotaReserved", "False")] * 100
    assert server.asked == [KUEUE, WORKLOADS]


def test_a_workload_that_is_not_known_or_tells_nothing_is_read_alone():
    """It may be younger than what is known, or have lost its quota since."""
    server = Server({KUEUE: GROUP, WORKLOADS: listed()})
    evidence = DiagnosticsCache(server.ask)
    assert evidence.workload("u1", "ml") == {}
    server.answers[WORKLOADS] = listed(workload("Evicted", "True"))
    assert evidence.workload("u1", "ml") == workload("Evicted", "True")
    admitted = Server({KUEUE: GROUP, WORKLOADS: listed(workload("QuotaReserved", "True"))})
    evidence = DiagnosticsCache(admitted.ask)
    assert evidence.workload("u1", "ml") == workload("QuotaReserved", "True")
    assert admitted.asked == [KUEUE, WORKLOADS, WORKLOADS]


@pytest.mark.parametrize("error", [NotFound("no Kueue"), PermissionDenied("may not list workloads")])
def test_who_has_no_kueue_or_may_not_look_asks_once_and_knows_nothing(error):
    server = Server({KUEUE: error})
    evidence = DiagnosticsCache(server.ask)
    assert [evidence.workload("u1", "ml") for _ in range(100)] == [None] * 100
    assert len(server.asked) == 1


def test_who_may_not_look_at_events_asks_once_too():
    server = Server({EVENTS: PermissionDenied("may not list events")})
    evidence = DiagnosticsCache(server.ask)
    assert [evidence.warnings("ml") for _ in range(100)] == [{}] * 100
    assert server.asked == [EVENTS]


def test_an_outage_is_an_error_and_not_nothing():
    evidence = DiagnosticsCache(Server({EVENTS: ServerUnavailable("busy")}).ask)
    with pytest.raises(ServerUnavailable):
        evidence.warnings("ml")
