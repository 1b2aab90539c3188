"""TrainJobs after decisions of users, on PostgreSQL and two triggerers."""

from __future__ import annotations

import time

import pytest

from tests.support.standalone import wait_for_airflow

pytestmark = pytest.mark.timeout(600)
SECONDS = 10.0  # limit of the test; docs/evidence/airflow.md has the measured seconds


def wait_for_deletions(recorder, jobs, decided_at):
    """Return the seconds from the decision to the deletion of the last job."""
    wait_for_airflow(lambda: all(map(recorder.deleted_at, jobs)), 60)
    return max(recorder.deleted_at(uid) for uid in jobs) - decided_at


def describe(took):
    return ", ".join(f"{name}: deleted after {seconds:.1f} s" for name, seconds in took.items())


@pytest.mark.parametrize("dag", ["deferred", "on_worker"])
def test_marking_a_task_deletes_its_job(running_tasks, airflow, recorder, record_case, dag):
    runs = {state: running_tasks.start(dag) for state in ("failed", "success")}
    wait_for_airflow(lambda: all(running_tasks.is_waited_for(run) for run in runs.values()), 120)
    took = {}
    for state, run in runs.items():
        [uid] = recorder.jobs(run)
        assert recorder.deleted_at(uid) is None
        decided_at = time.monotonic()
        airflow.mark_task(run, "task", state)
        took[state] = wait_for_deletions(recorder, [uid], decided_at)
    record_case(f"task marked, {dag.replace('_', ' ')}", describe(took))
    assert max(took.values()) <= SECONDS
    assert [airflow.get_state(run, "task") for run in runs.values()] == list(runs)


def test_setting_the_state_of_a_run_deletes_its_jobs(running_tasks, airflow, recorder, record_case):
    runs = {state: running_tasks.start("both") for state in ("failed", "success")}
    tasks = ("deferred", "on_worker")
    wait_for_airflow(
        lambda: all(running_tasks.is_waited_for(run, task) for run in runs.values() for task in tasks), 120
    )
    took = {}
    for state, run in runs.items():
        decided_at = time.monotonic()
        airflow.request("PATCH", run, {"state": state})
        took[state] = wait_for_deletions(recorder, recorder.jobs(run), decided_at)
    record_case("run marked, one task deferred and one on a worker", describe(took))
    assert max(took.values()) <= SECONDS


def test_each_action_is_applied_when_a_user_marks_the_task(running_tasks, airflow, recorder, cluster, record_case):
    run = running_tasks.start("killed")
    actions = ("delete", "suspend", "keep")
    wait_for_airflow(lambda: all(running_tasks.is_deferred(run, task) for task in actions), 120)
    wait_for_airflow(lambda: all(running_tasks.has_pods(run, task) for task in actions), 60)
    uids = {task: next(iter(recorder.jobs(run, task))) for task in actions}
    decided_at = time.monotonic()
    for task in actions:
        airflow.mark_task(run, task, "failed")

    def is_suspended():
        return recorder.jobs(run, "suspend")[uids["suspend"]]["spec"].get("suspend")

    wait_for_airflow(lambda: recorder.deleted_at(uids["delete"]) and is_suspended(), 60)
    seconds = time.monotonic() - decided_at
    assert not recorder.deleted_at(uids["suspend"])
    assert not recorder.deleted_at(uids["keep"])
    assert not recorder.jobs(run, "keep")[uids["keep"]]["spec"].get("suspend")
    record_case("each `on_kill`", f"deleted, suspended and kept after {seconds:.1f} s")
    for task in ("suspend", "keep"):
        job = recorder.jobs(run, task)[uids[task]]
        cluster.delete_trainjob(job["metadata"]["name"], "default", uids[task])


def test_a_task_that_is_cleared_in_each_state_runs_again(running_tasks, airflow, recorder, record_case):
    """The states are deferred, running on a worker, success and failed."""
    active = {dag: running_tasks.start(dag) for dag in ("deferred", "on_worker")}
    marked = running_tasks.start("deferred")
    runs = {**active, "failed": marked}
    wait_for_airflow(lambda: all(running_tasks.is_waited_for(run) for run in runs.values()), 120)
    airflow.mark_task(marked, "task", "failed")
    wait_for_airflow(lambda: airflow.get_state(marked) == "failed", 60)
    took = {}
    for dag, run in active.items():
        decided_at, jobs = time.monotonic(), recorder.jobs(run)
        airflow.clear_task(run, "task")
        took[dag.replace("_", " ")] = wait_for_deletions(recorder, jobs, decided_at)
    airflow.clear_task(marked, "task")
    wait_for_airflow(lambda: all(len(recorder.jobs(run)) == 2 for run in runs.values()), 120)
    running_tasks.release_all()
    running_tasks.wait_for_success(*runs.values())
    airflow.clear_task(marked, "task")  # now in the state success
    wait_for_airflow(lambda: len(recorder.jobs(marked)) == 3, 120)
    running_tasks.wait_for_success(marked)
    assert [len(recorder.jobs(run)) for run in active.values()] == [2, 2]
    record_case("task cleared in each state", f"{describe(took)}; 1 new TrainJob for each clear")
    assert max(took.values()) <= SECONDS
