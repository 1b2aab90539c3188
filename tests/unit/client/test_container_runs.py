"""Tests of what pod statuses show about the runs of containers."""

from __future__ import annotations

import pytest

from trainjob.client.container_runs import ContainerRuns

RUNNING = {"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
ENDED = {"exitCode": 1, "startedAt": "2026-01-01T00:00:00Z"}


def pod(**metadata):
    return {"metadata": {"uid": "u", **metadata}, "spec": {"restartPolicy": "OnFailure"}}


def status(restarts=0, **state):
    return {"name": "node", "restartCount": restarts, **(state or RUNNING)}


def test_runs_between_two_observations_are_skipped():
    runs = ContainerRuns()
    assert runs.observe(pod(), status(), deleted=False) == ([("u", "node", 0)], range(1, -1))
    readable, skipped = runs.observe(pod(), status(4), deleted=False)
    assert readable == [("u", "node", 3), ("u", "node", 4)]
    assert list(skipped) == [1, 2]
    assert not runs.observe(pod(), status(4), deleted=False).skipped
    assert runs.count_later_runs(("u", "node", 0)) == 4


def test_a_wait_that_begins_late_skips_runs():
    assert list(ContainerRuns().observe(pod(), status(3), deleted=False).skipped) == [0, 1]


@pytest.mark.parametrize(("started", "readable"), [("1970-01-01T00:00:00Z", []), ("2026-01-01T00:00:00Z", [0])])
def test_a_command_that_could_not_start_has_no_log(started, readable):
    state = {"terminated": {"exitCode": 128, "startedAt": started}}
    found = ContainerRuns().observe(pod(), status(state=state), deleted=False).readable
    assert [run[2] for run in found] == readable


def test_a_container_that_waits_for_a_restart_has_ended():
    runs, run = ContainerRuns(), ("u", "node", 0)
    runs.observe(pod(), status(), deleted=False)
    assert not runs.has_ended(run)
    runs.observe(pod(), status(state={"waiting": {}}, lastState={"terminated": ENDED}), deleted=False)
    assert runs.wait_for_end(run, 0.0)
    assert not runs.has_ended_permanently(run)
    assert runs.count_later_runs(run) == 1


def test_a_deleted_pod_has_ended():
    runs, run = ContainerRuns(), ("u", "node", 0)
    runs.observe(pod(deletionTimestamp="2026-01-01T00:00:00Z"), status(), deleted=False)
    assert runs.is_deleting(run)
    assert not runs.is_deleted(run)
    runs.observe(pod(), status(), deleted=True)
    assert runs.is_deleted(run)
    assert runs.has_ended(run)
