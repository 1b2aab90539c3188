"""TrainJobs after decisions of users that Airflow does not report to a trigger.

Airflow deletes the trigger of a task that is marked before a triggerer has started the trigger. It does not cancel the
trigger of a task that is cleared together with its upstream tasks. Each case is repeated while both cores are busy.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time

import pytest

from tests.chaos.airflow_kills.dags.decisions import TASKS
from tests.support.standalone import wait_for_airflow
from trainjob.manifest import labels

pytestmark = pytest.mark.timeout(1800)
ROUNDS = 5
SECONDS_TO_DELETE = 60  # limit of the test; the measured seconds are in docs/evidence/airflow.md


@contextlib.contextmanager
def busy_cores():
    """Keep each core busy with a process of its own."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


class MappedTasks:
    """The mapped tasks of one DAG run, and their TrainJobs."""

    def __init__(self, airflow, recorder, run):
        self._airflow, self._recorder, self._run = airflow, recorder, run

    def list_states(self):
        """Return the state of each task by map index."""
        path = f"{self._run}/taskInstances/task/listMapped?limit=100"
        found = (self._airflow.request("GET", path) or {"task_instances": []})["task_instances"]
        return {each["map_index"]: each["state"] for each in found}

    def mark(self, index, state):
        self._airflow.request("PATCH", f"{self._run}/taskInstances/task/{index}", {"new_state": state})

    def jobs(self):
        return self._recorder.jobs(self._run, "task")

    def wait_until_deleted(self, decided_at):
        """Wait for the deletion of all TrainJobs.

        Returns:
            Seconds from the decision about the task, which `decided_at` has by map index, to the deletion.
        """
        jobs = {uid: get_map_index(job) for uid, job in self.jobs().items()}
        assert sorted(jobs.values()) == sorted(decided_at)
        wait_for_airflow(lambda: all(map(self._recorder.deleted_at, jobs)), SECONDS_TO_DELETE)
        return [self._recorder.deleted_at(uid) - decided_at[index] for uid, index in jobs.items()]


def get_map_index(job):
    return int(json.loads(job["metadata"]["annotations"][labels.RUN_KEY])["map_index"])


def mark_when_deferred(tasks, state):
    """Mark each task as soon as it is deferred.

    Returns:
        Time of each decision by map index.
    """
    decided_at = {}

    def mark_new():
        for index, found in tasks.list_states().items():
            if found == "deferred" and index not in decided_at:
                tasks.mark(index, state)
                decided_at[index] = time.monotonic()
        return len(decided_at) == TASKS

    deadline = time.monotonic() + 300
    while not mark_new():
        assert time.monotonic() < deadline
    return decided_at


def describe(took):
    """Return the number of TrainJobs and the seconds from the decisions to their deletions."""
    half, slowest = sorted(took)[len(took) // 2], max(took)
    return f"{len(took)} TrainJobs, 0 left: half deleted within {half:.1f} s, all within {slowest:.1f} s"


def test_the_job_of_a_task_marked_at_its_deferral_is_deleted(airflow, recorder, record_case, tmp_path):
    took = []
    with busy_cores():
        for number in range(ROUNDS):
            tasks = MappedTasks(airflow, recorder, airflow.start_run("mapped", go=str(tmp_path)))
            decided_at = mark_when_deferred(tasks, ("failed", "success")[number % 2])
            took += tasks.wait_until_deleted(decided_at)
    record_case("task marked at the moment of its deferral, busy cores", describe(took))


def test_the_job_of_a_task_marked_before_its_trigger_starts_is_deleted(airflow, recorder, tmp_path):
    with airflow.suspended_component("triggerer"):
        tasks = MappedTasks(airflow, recorder, airflow.start_run("mapped", go=str(tmp_path)))
        tasks.wait_until_deleted(mark_when_deferred(tasks, "failed"))


def test_the_job_of_a_task_cleared_with_its_upstream_is_deleted(airflow, recorder, record_case, tmp_path):
    took = []
    file = tmp_path / "upstream"
    with busy_cores():
        for _ in range(ROUNDS):
            file.touch()
            run = airflow.start_run("mapped_after_upstream", go=str(tmp_path))
            tasks = MappedTasks(airflow, recorder, run)
            wait_for_airflow(lambda tasks=tasks: list(tasks.list_states().values()) == ["deferred"] * TASKS, 300)
            file.unlink()
            airflow.clear_tasks(run, "upstream", "task")
            took += tasks.wait_until_deleted(dict.fromkeys(range(TASKS), time.monotonic()))
            wait_for_airflow(lambda run=run: airflow.get_state(run, "upstream") == "running", 60)
            airflow.request("PATCH", run, {"state": "failed"})
    record_case("task cleared together with its upstream task, busy cores", describe(took))
