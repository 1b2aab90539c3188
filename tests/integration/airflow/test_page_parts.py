"""The parts of the page's server side: what they cost, what they keep, and what they leave out."""

from __future__ import annotations

import json
import subprocess
import sys
import threading

import pytest

from tests.support.polling import wait_until
from trainjob.errors import ClusterUnreachable
from trainjob.lifecycle import run_key_of
from trainjob.status import Progress
from trainjob_airflow.plugins import shared_query
from trainjob_airflow.plugins.log_tails import LogTails, LossCurve
from trainjob_airflow.plugins.rows import event_rows, rank_rows
from trainjob_airflow.plugins.shared_query import SharedQuery


def test_the_plugin_costs_no_airflow_process_more_than_itself():
    code = (
        "import sys, trainjob_airflow, airflow.sdk.plugins_manager; before = set(sys.modules)\n"
        "import trainjob_airflow.plugins.page\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].split() == ["trainjob_airflow.plugins", "trainjob_airflow.plugins.page"]


def test_many_who_ask_cost_one_question(monkeypatch):
    monkeypatch.setattr(shared_query, "_PATIENCE_SECONDS", 3600.0)  # real ones
    asked, go, answers = [], threading.Event(), []

    def answer():
        asked.append(1)
        go.wait()
        return len(asked)

    now = [0.0]
    recent = SharedQuery(answer, clock=lambda: now[0])
    threads = [threading.Thread(target=lambda: answers.append(recent.get())) for _ in range(20)]
    for thread in threads:
        thread.start()
    wait_until(lambda: asked)
    go.set()
    for thread in threads:
        thread.join(60)
    assert (answers, len(asked)) == ([1] * 20, 1)
    now[0] = 1.9
    assert recent.get() == 1
    now[0] = 2.1
    assert recent.get() == 2


def test_a_question_that_hangs_holds_nobody_for_long(monkeypatch):
    monkeypatch.setattr(shared_query, "_PATIENCE_SECONDS", 3600.0)
    go, asked, now, answers = threading.Event(), threading.Event(), [0.0], []

    def answer():
        asked.set()
        go.wait()
        return 1

    recent = SharedQuery(answer, clock=lambda: now[0])
    first = threading.Thread(target=lambda: answers.append(recent.get()))
    first.start()
    asked.wait(60)
    now[0] = 3600.0  # the first who asked has waited long enough for all
    with pytest.raises(ClusterUnreachable):
        recent.get()
    go.set()
    first.join(60)
    assert answers == [1]


def test_what_went_wrong_is_told_until_it_is_asked_again():
    results, now = [ValueError("no"), 7], [0.0]

    def answer():
        found = results.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    recent = SharedQuery(answer, clock=lambda: now[0])
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            recent.get()
    now[0] = 2.0
    assert recent.get() == 7


@pytest.mark.parametrize("steps", [0, 1, 2, 999, 1001, 50_000])
def test_a_long_loss_curve_keeps_its_ends_and_stays_small(steps):
    curve = LossCurve()
    for step in range(1, steps + 1):
        curve.add(Progress(step, loss=1 / step))
    points = curve.points
    assert len(points) <= 1002
    assert points == sorted(set(points))
    if steps:
        assert (points[0], points[-1]) == ((1, 1.0), (steps, 1 / steps))
    curve.add(Progress(steps + 1, loss=None))
    assert curve.points == points


def test_a_log_that_nobody_asks_for_is_not_followed_on(cluster):
    now = [0.0]
    followings = LogTails(clock=lambda: now[0], idle_seconds=0.05)
    first = followings.get("uid-1", cluster, "default")
    assert followings.get("uid-1", cluster, "default") is first
    assert len(followings) == 1
    now[0] = 1.0
    wait_until(lambda: not len(followings))
    assert followings.get("uid-1", cluster, "default") is not first


def test_too_many_followed_logs_end_the_oldest(cluster):
    followings = LogTails(clock=lambda: 0.0)
    first = followings.get("uid-0", cluster, "default")
    for n in range(1, 40):
        followings.get(f"uid-{n}", cluster, "default")
    assert len(followings) == 32
    assert followings.get("uid-0", cluster, "default") is not first


@pytest.mark.parametrize("annotation", [None, "", "no json", "[]", '"x"', '{"engine": "airflow"}', '{"a": 1}', "null"])
def test_a_trainjob_that_does_not_say_who_asked_for_it_is_nobodys(annotation):
    given = {} if annotation is None else {"trainjob.dev/run-key": annotation}
    assert run_key_of({"metadata": {"annotations": given}}) is None
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


def test_ranks_say_why_they_do_not_run_but_not_what_their_container_said_last():
    rows = rank_rows([pod(1, exit_code=3, message="the log's end"), pod(0, reason="ImagePullBackOff", message="no x")])
    assert [row["rank"] for row in rows] == [0, 1]
    assert rows[0]["reason"] == "node-0: ImagePullBackOff: no x"
    assert rows[1]["reason"] == "exit code 3 (Error)"
    assert "the log's end" not in json.dumps(rows)
    assert "secret" not in json.dumps(rows)
    assert rows[0]["restarts"] == 2


def test_of_many_ranks_those_in_trouble_are_shown():
    rows = rank_rows([pod(rank, exit_code=1 if rank == 999 else 0) for rank in range(1000)])
    assert len(rows) == 256
    assert rows[-1]["rank"] == 999


def test_events_are_shown_once_the_newest_first():
    def event(uid, time):
        about = {"kind": "Pod", "name": "p"}
        return {"metadata": {"uid": uid}, "lastTimestamp": time, "involvedObject": about, "message": uid}

    rows = event_rows(
        [event("a", "2026-01-01T00:00:00Z"), event("b", "2026-01-02T00:00:00Z"), event("a", "2026-01-01T00:00:00Z")]
    )
    assert [row["message"] for row in rows] == ["b", "a"]
