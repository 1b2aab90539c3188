"""Tests of the parts of the page's server side: shared queries, log tails and rows."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from tests.support.polling import wait_until
from tests.support.refused_threads import RefusedStarts
from trainjob.client import LogLine
from trainjob.errors import OutOfThreads
from trainjob.lifecycle import run_key_of
from trainjob.status import Progress
from trainjob_airflow.plugins import api, log_tails, shared_query, user_rows
from trainjob_airflow.plugins.log_tails import LogTail, LogTails, MetricCurve
from trainjob_airflow.plugins.rows import event_rows, job_row, rank_rows
from trainjob_airflow.plugins.shared_query import QueryRunning, SharedQuery
from trainjob_airflow.plugins.task_records import TaskXComs


def test_the_plugin_imports_only_its_listeners():
    code = (
        "import sys, trainjob_airflow.version_compat; before = set(sys.modules)\n"
        "import trainjob_airflow.plugins.page\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = {name for name in done.stdout.splitlines()[-1].split() if not name.startswith("airflow.")}
    assert modules == {
        "trainjob_airflow.delivery",
        "trainjob_airflow.plugins",
        "trainjob_airflow.plugins.page",
        "trainjob_airflow.termination",
        "trainjob_airflow.trigger_start",
    }


def test_many_requests_share_one_query(monkeypatch):
    monkeypatch.setattr(shared_query, "_MAX_WAIT_SECONDS", 3600.0)  # in real time
    queries, go, results = [], threading.Event(), []

    def query():
        queries.append(1)
        go.wait()
        return len(queries)

    now = [0.0]
    shared = SharedQuery(query, clock=lambda: now[0])
    threads = [threading.Thread(target=lambda: results.append(shared.get())) for _ in range(20)]
    for thread in threads:
        thread.start()
    wait_until(lambda: queries)
    go.set()
    for thread in threads:
        thread.join(60)
    assert (results, len(queries)) == ([1] * 20, 1)
    now[0] = 1.9
    assert shared.get() == 1
    now[0] = 2.1
    assert shared.get() == 2


def test_a_hanging_query_blocks_requests_only_for_a_limited_time(monkeypatch):
    monkeypatch.setattr(shared_query, "_MAX_WAIT_SECONDS", 3600.0)
    go, started, now, results = threading.Event(), threading.Event(), [0.0], []

    def query():
        started.set()
        go.wait()
        return 1

    shared = SharedQuery(query, clock=lambda: now[0])
    first = threading.Thread(target=lambda: results.append(shared.get()))
    first.start()
    started.wait(60)
    now[0] = 3600.0  # the maximum time to wait, counted from the start of the query, is over
    with pytest.raises(QueryRunning):
        shared.get()
    go.set()
    first.join(60)
    assert results == [1]


def test_a_slow_query_is_repeated_in_the_background(monkeypatch):
    """Requests get the earlier result until it is 30 s old."""
    monkeypatch.setattr(shared_query, "_MAX_WAIT_SECONDS", 3600.0)
    now, results, go = [0.0], [], threading.Event()
    go.set()

    def query():
        go.wait()
        now[0] += 2.0
        results.append(len(results))
        return results[-1]

    shared = SharedQuery(query, clock=lambda: now[0])
    assert shared.get() == 0  # ends at 2 s
    go.clear()
    now[0] = 18.0  # the result has expired
    assert shared.get() == 0  # does not wait for the query, which cannot end
    now[0] = 32.1
    waiting = threading.Thread(target=lambda: results.append(("waited", shared.get())))
    waiting.start()
    go.set()
    waiting.join(60)
    assert results == [0, 1, ("waited", 1)]


def share_outcomes(now, *outcomes):
    """Return a shared query whose runs end with these results or errors, one after the other."""
    left = [*outcomes]

    def query():
        found = left.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    return SharedQuery(query, clock=lambda: now[0])


def test_an_error_of_a_query_is_raised_until_the_next_query():
    now = [0.0]
    shared = share_outcomes(now, ValueError("no"), 7)
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            shared.get()
    now[0] = 2.0
    assert shared.get() == 7


def test_the_last_result_stays_while_queries_fail():
    now = [0.0]
    shared = share_outcomes(now, 7, ValueError("no"), 8)
    assert shared.last_result is None
    assert shared.get() == 7
    now[0] = 60.0
    with pytest.raises(ValueError, match="no"):
        shared.get()
    assert shared.last_result == (7, 60.0)
    now[0] = 70.0
    assert (shared.get(), shared.last_result) == (8, (8, 0.0))


def test_after_a_refused_thread_the_next_request_runs_the_query():
    now, results = [0.0], iter([1, 2])
    shared = SharedQuery(lambda: next(results), clock=lambda: now[0])
    with RefusedStarts(lambda _: True), pytest.raises(OutOfThreads):
        shared.get()
    assert shared.get() == 1
    now[0] = 3.0
    assert shared.get() == 2


@pytest.mark.parametrize("steps", [0, 1, 2, 999, 1001, 50_000])
def test_a_long_loss_curve_keeps_its_ends_and_has_few_points(steps):
    curve = MetricCurve("loss")
    for step in range(1, steps + 1):
        curve.add(Progress(step, loss=1 / step))
    points = curve.points
    assert len(points) <= 1002
    assert points == sorted(set(points))
    if steps:
        assert (points[0], points[-1]) == ((1, 1.0), (steps, 1 / steps))
    curve.add(Progress(steps + 1, loss=None))
    assert curve.points == points


def test_a_flood_is_read_at_a_bounded_rate(monkeypatch):
    pauses = []
    # Not time.sleep itself, which threads of other tests call.
    monkeypatch.setattr(log_tails, "time", SimpleNamespace(monotonic=time.monotonic, sleep=pauses.append))
    tail = LogTail(None, "ml")
    for _ in range(20_000):
        tail._add_line(LogLine("node-0", "x" * 900))
    assert pauses[:8000] == [0.0] * 8000  # the first 8 MB
    assert pauses[-1] > 5.0  # 12 MB are above what may be read at 1 MB/s


def test_a_curve_has_each_step_once_and_no_values_of_earlier_steps():
    curve = MetricCurve("eval_loss")
    for step, value, carried in ((5, 1.0, ()), (5, 1.0, ()), (7, 1.0, ("eval_loss",)), (10, 0.5, ())):
        curve.add(Progress(step, metrics={"eval_loss": value}, carried=frozenset(carried)))
    assert curve.points == [(5, 1.0), (10, 0.5)]


def test_the_progress_that_the_trainer_reports_is_shown_if_the_task_has_none():
    metrics = [{"name": name, "value": value} for name, value in (("current_step", "5"), ("total_steps", "10"))]
    metrics.append({"name": "reward", "value": "0.5"})
    metadata = {"name": "tune", "namespace": "ml", "uid": "u"}
    job = {"metadata": metadata, "status": {"trainerStatus": {"progressPercentage": 49, "metrics": metrics}}}
    row = {**job_row(job, ("dag", "run", "task", -1), connection="c"), "newest": True}
    shown = user_rows._with_progress(row, TaskXComs({"phase": "Running", "step": None, "percent": None}), True)
    assert "trainer_status" not in shown
    assert {name: shown["progress"][name] for name in ("phase", "step", "total", "percent")} == {
        "phase": "Running",
        "step": 5,
        "total": 10,
        "percent": 50.0,
    }
    assert api._without_metrics(shown)["progress"]["metrics"] == {"reward": 0.5}
    known = {"step": 7, "percent": 70.0}
    assert user_rows._with_progress(row, TaskXComs(known), True)["progress"] == known
    assert user_rows._with_progress(row, TaskXComs(), False)["progress"] is None
    silent = {**row, "trainer_status": {}}
    assert user_rows._with_progress(silent, TaskXComs({"step": 7}), True)["progress"] == {"step": 7}
    assert user_rows._with_progress({**silent, "newest": False}, TaskXComs({"step": 7}), True)["progress"] is None


def test_following_ends_for_a_log_without_requests(cluster):
    now = [0.0]
    log_tails = LogTails(clock=lambda: now[0], idle_seconds=0.05)
    first = log_tails.get("uid-1", cluster, "default")
    assert log_tails.get("uid-1", cluster, "default") is first
    assert len(log_tails) == 1
    now[0] = 1.0
    wait_until(lambda: not len(log_tails))
    assert log_tails.get("uid-1", cluster, "default") is not first


def test_following_ends_although_the_first_thread_for_that_was_refused(cluster):
    now = [0.0]
    log_tails = LogTails(clock=lambda: now[0], idle_seconds=0.05)
    with RefusedStarts(lambda n: n == 1) as starts:
        log_tails.get("uid-1", cluster, "default")
        assert starts.count == 1
        log_tails.get("uid-1", cluster, "default")
    now[0] = 1.0
    wait_until(lambda: not len(log_tails))


def test_beyond_the_maximum_following_ends_for_the_oldest_request(cluster):
    log_tails = LogTails(clock=lambda: 0.0)
    first = log_tails.get("uid-0", cluster, "default")
    for n in range(1, 40):
        log_tails.get(f"uid-{n}", cluster, "default")
    assert len(log_tails) == 32
    assert log_tails.get("uid-0", cluster, "default") is not first


@pytest.mark.parametrize("annotation", [None, "", "no json", "[]", '"x"', '{"engine": "airflow"}', '{"a": 1}', "null"])
def test_a_trainjob_without_a_valid_run_key_annotation_has_no_run_key(annotation):
    annotations = {} if annotation is None else {"trainjob.dev/run-key": annotation}
    assert run_key_of({"metadata": {"annotations": annotations}}) is None
    assert run_key_of({"metadata": {}}) is None


def pod(rank, *, reason="", exit_code=0, message="", deleted=False):
    state = {"terminated": {"exitCode": exit_code, "reason": "Error", "message": message}} if exit_code else {}
    state = {"waiting": {"reason": reason, "message": message}} if reason else state
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "node", "batch.kubernetes.io/job-completion-index": str(rank)}
    return {
        "metadata": {"name": f"pod-{rank}", "labels": labels, **({"deletionTimestamp": "x"} if deleted else {})},
        "spec": {"nodeName": "n1", "containers": [{"env": [{"name": "A", "value": "secret"}]}]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "node", "restartCount": 2, "state": state}]},
    }


def test_rank_rows_have_reasons_but_no_log_lines():
    rows = rank_rows([pod(1, exit_code=3, message="the log's end"), pod(0, reason="ImagePullBackOff", message="no x")])
    assert [row["rank"] for row in rows] == [0, 1]
    assert rows[0]["reason"] == "node-0: ImagePullBackOff: no x"
    assert rows[1]["reason"] == "exit code 3 (Error)"
    assert "the log's end" not in json.dumps(rows)
    assert "secret" not in json.dumps(rows)
    assert rows[0]["restarts"] == 2


def test_of_many_ranks_those_with_a_reason_are_included():
    rows = rank_rows([pod(rank, exit_code=1 if rank == 999 else 0) for rank in range(1000)])
    assert len(rows) == 256
    assert rows[-1]["rank"] == 999


def test_events_are_included_once_and_the_newest_come_first():
    def event(uid, time):
        involved_object = {"kind": "Pod", "name": "p"}
        return {"metadata": {"uid": uid}, "lastTimestamp": time, "involvedObject": involved_object, "message": uid}

    rows = event_rows(
        [event("a", "2026-01-01T00:00:00Z"), event("b", "2026-01-02T00:00:00Z"), event("a", "2026-01-01T00:00:00Z")]
    )
    assert [row["message"] for row in rows] == ["b", "a"]


def test_lines_of_a_log_have_no_control_sequences(cluster):
    tail = LogTail(cluster, "default")
    tail._add_line(LogLine("node-0", "step 1\x1b[A \x1b[1;32mdone\x1b[0m \x1b]0;title\x07 \u202e"))
    assert tail.snapshot([])["lines"] == ["[node-0] step 1 done ^[]0;title^G <U+202E>"]
