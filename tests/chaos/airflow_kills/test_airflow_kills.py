"""TrainJobs and tasks after a user marks or clears a task, and after a part of Airflow or of the cluster is killed.

All components are real: those of Airflow are processes that get SIGKILL, and the cluster's API server refuses
connections. One DAG run has a task in each phase, so that one kill tests all of them.
"""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.support.standalone import wait_for_airflow
from trainjob.status import Phase, derive_verdict

pytestmark = pytest.mark.timeout(600)
SECONDS = 5.0  # from the moment when a user clears the task or sets its state, until the job is deleted
CREATION = '"trainjob.dev/task": "creating"'  # only the request that creates that task's job has this text
PHASES = ("creating", "deferred", "resumed", "on_worker")


class RunningTasks:
    """The tasks of one test, each of which stays in a phase."""

    def __init__(self, airflow, recorder, cluster, proxy, folder):
        self.airflow, self._recorder, self._cluster, self._proxy, self._folder = (
            airflow,
            recorder,
            cluster,
            proxy,
            folder,
        )

    def start(self, dag):
        return self.airflow.start_run(dag, go=str(self._folder))

    def has_pods(self, run, task):
        """Return whether the task's newest job has a pod."""
        jobs = list(self._recorder.jobs(run, task).values())
        return bool(jobs and self._cluster.list_pods(jobs[-1]["metadata"]["name"], "default"))

    def is_complete(self, run, task):
        return any(derive_verdict(job).phase is Phase.COMPLETE for job in self._recorder.jobs(run, task).values())

    def is_waited_for(self, run, task="task"):
        """Return whether a worker or a triggerer waits for the task's job."""
        is_running = self.airflow.get_state(run, task) == "running"
        return (is_running or self.is_deferred(run, task)) and self.has_pods(run, task)

    def is_deferred(self, run, task="task"):
        """Return whether a triggerer has the task.

        A job may be running before the worker has released the task.
        """
        found = self.airflow.request("GET", f"{run}/taskInstances/{task}")
        return found["state"] == "deferred" and found["triggerer_job"] is not None

    def shows_progress(self, run):
        """Return whether the triggerer has written the task's progress.

        A new triggerer needs seconds for its first XCom.
        """
        return self.airflow.request("GET", f"{run}/taskInstances/task/xcomEntries/progress")

    def start_in_every_phase(self):
        """Start a DAG run with a task in each phase, and one whose job has ended while it waits."""
        self._proxy.withhold_responses(CREATION)
        run = self.start("phases")
        self.end_when_deferred(run, "resumed")
        wait_for_airflow(lambda: self.is_in_every_phase(run), 90)
        ended = self.start("ended")
        self.end_when_deferred(ended, "ended")
        wait_for_airflow(lambda: self.is_complete(ended, "ended"), 15)
        assert self.airflow.get_state(ended, "ended") == "deferred"
        assert self.is_in_every_phase(run)
        return run, ended

    def end_when_deferred(self, run, task):
        """End a task's job once the task is deferred, because a finished job is not deferred."""
        wait_for_airflow(lambda: self.airflow.get_state(run, task) == "deferred", 60)
        (self._folder / f"{task}.ends").touch()

    def is_in_every_phase(self, run):
        listed = self.airflow.request("GET", f"{run}/taskInstances")["task_instances"]
        states = {found["task_id"]: found["state"] for found in listed}
        return (
            states == {"creating": "running", "deferred": "deferred", "resumed": "running", "on_worker": "running"}
            and self._recorder.jobs(run, "creating")
            and self.has_pods(run, "deferred")
            and (self._folder / "resumed.waits").exists()
            and self.has_pods(run, "on_worker")
        )

    def release_all(self):
        """Let all jobs and tasks continue."""
        self._proxy.release_responses()
        for name in (*PHASES, "resumed.ends", "ended.ends", "task", "late"):
            (self._folder / name).touch()

    def wait_for_success(self, *runs, seconds=150):
        def ended():
            states = [self.airflow.get_state(run) for run in runs]
            assert "failed" not in states
            return set(states) == {"success"}

        wait_for_airflow(ended, seconds)

    def get_try_number(self, run, task):
        return self.airflow.request("GET", f"{run}/taskInstances/{task}")["try_number"]

    def assert_one_job_each(self, run, tasks):
        made = {task: len(self._recorder.jobs(run, task)) for task in tasks}
        assert made == dict.fromkeys(tasks, 1)


@pytest.fixture
def running_tasks(airflow, recorder, cluster, proxy, tmp_path):
    made = RunningTasks(airflow, recorder, cluster, proxy, tmp_path)
    yield made
    made.release_all()


def list_task_processes(airflow):
    """Return the processes that run a task's own code."""
    return [pid for pid, title in airflow.list_processes("scheduler").items() if "task runner" in title]


def list_busy_workers(airflow):
    """Return the LocalExecutor's workers that supervise a task and report its state."""
    workers = {pid: title for pid, title in airflow.list_processes("scheduler").items() if "LocalExecutor" in title}
    return [pid for pid, title in workers.items() if "<idle>" not in title]


def list_idle_workers(airflow):
    return [pid for pid, title in airflow.list_processes("scheduler").items() if "<idle>" in title]


# -- a user decides ----------------------------------------------------------------------------------------------------


def test_marking_or_clearing_a_task_deletes_its_job(running_tasks, airflow, recorder):
    decisions = ("failed", "success", "clear")
    runs = {(dag, decision): running_tasks.start(dag) for dag in ("deferred", "on_worker") for decision in decisions}
    wait_for_airflow(lambda: all(running_tasks.is_waited_for(run) for run in runs.values()), 120)
    wait_for_airflow(lambda: running_tasks.shows_progress(runs["deferred", "failed"]), 60)
    took = {}
    for (dag, decision), run in runs.items():
        [uid] = recorder.jobs(run)
        if decision == "clear":
            airflow.clear_task(run, "task")
        else:
            airflow.mark_task(run, "task", decision)
        decided_at = time.monotonic()
        wait_for_airflow(lambda uid=uid: recorder.deleted_at(uid), 30)
        took[dag, decision] = recorder.deleted_at(uid) - decided_at
    print("seconds from the decision to the job's deletion:", took)
    assert max(took.values()) <= SECONDS
    running_tasks.release_all()
    for (dag, decision), run in runs.items():
        if decision == "clear":
            running_tasks.wait_for_success(run)
        assert airflow.get_state(run, "task") == ("failed" if decision == "failed" else "success"), dag
        assert len(recorder.jobs(run)) == (2 if decision == "clear" else 1)


def test_marking_a_task_during_the_creation_of_its_job_deletes_the_job(running_tasks, airflow, recorder, proxy):
    proxy.withhold_responses(CREATION)
    run = running_tasks.start("creating")
    wait_for_airflow(lambda: recorder.jobs(run), 60)
    airflow.mark_task(run, "creating", "failed")
    decided_at = time.monotonic()
    proxy.release_responses()
    [uid] = recorder.jobs(run)
    wait_for_airflow(lambda: recorder.deleted_at(uid), 30)
    assert recorder.deleted_at(uid) - decided_at <= SECONDS


def test_a_cleared_task_runs_again_even_if_its_new_try_is_killed(running_tasks, airflow, recorder):
    (running_tasks._folder / "task").touch()
    run = running_tasks.start("deferred")
    running_tasks.wait_for_success(run)
    airflow.clear_task(run, "task")
    wait_for_airflow(
        lambda: running_tasks.get_try_number(run, "task") == 2 and airflow.get_state(run, "task") == "running", 60
    )
    for pid in list_task_processes(airflow):
        os.kill(pid, signal.SIGKILL)
    running_tasks.wait_for_success(run)
    assert len(recorder.jobs(run)) == 2


def test_a_sweep_deletes_the_job_of_a_task_marked_without_a_triggerer(
    running_tasks, airflow, recorder, cluster, evidence
):
    decided, other = running_tasks.start("deferred"), running_tasks.start("deferred")
    wait_for_airflow(
        lambda: all(running_tasks.is_deferred(run) and running_tasks.has_pods(run, "task") for run in (decided, other)),
        120,
    )
    airflow.kill_component("triggerer")
    airflow.mark_task(decided, "task", "failed")
    airflow.start_component("triggerer")
    wait_for_airflow(airflow.is_healthy, 120)
    [uid], [kept] = recorder.jobs(decided), recorder.jobs(other)
    left = sum(job["metadata"]["uid"] == uid for job in cluster.list_trainjobs("default"))
    assert left == 1  # no triggerer was running that could delete it
    sweep = airflow.start_run("sweeping")
    running_tasks.wait_for_success(sweep)
    assert recorder.deleted_at(uid)
    assert recorder.deleted_at(kept) is None
    running_tasks.release_all()
    running_tasks.wait_for_success(other)
    running_tasks.assert_one_job_each(other, ["task"])
    fault = "Airflow: task marked as failed while no triggerer runs"
    evidence("faults", fault=fault, runs=1, result=f"{left} left, then deleted by the sweep")


# -- a component is killed ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("victims", [list_task_processes, list_busy_workers])
def test_tasks_succeed_when_workers_are_killed_in_every_phase(running_tasks, airflow, victims):
    run, ended = running_tasks.start_in_every_phase()
    for pid in victims(airflow):
        os.kill(pid, signal.SIGKILL)
    running_tasks.release_all()
    running_tasks.wait_for_success(run, ended)
    running_tasks.assert_one_job_each(run, PHASES)
    running_tasks.assert_one_job_each(ended, ["ended"])


def test_tasks_succeed_when_the_triggerer_is_killed_in_every_phase(running_tasks, airflow):
    run, ended = running_tasks.start_in_every_phase()
    airflow.kill_component("triggerer")
    airflow.start_component("triggerer")
    wait_for_airflow(airflow.is_healthy, 120)
    running_tasks.release_all()
    running_tasks.wait_for_success(run, ended)
    running_tasks.assert_one_job_each(run, PHASES)
    running_tasks.assert_one_job_each(ended, ["ended"])
    assert {running_tasks.get_try_number(run, task) for task in PHASES} == {1}


def test_tasks_succeed_when_the_scheduler_is_killed_in_every_phase(running_tasks, airflow):
    run, ended = running_tasks.start_in_every_phase()
    idle = list_idle_workers(airflow)
    for pid in idle:
        os.kill(pid, signal.SIGSTOP)  # so that the next task stays queued
    late = running_tasks.start("late")
    wait_for_airflow(lambda: airflow.get_state(late, "late") == "queued", 60)
    airflow.kill_main_process("scheduler")
    for pid in idle:
        os.kill(pid, signal.SIGKILL)
    airflow.start_component("scheduler")
    wait_for_airflow(airflow.is_healthy, 120)
    running_tasks.release_all()
    running_tasks.wait_for_success(run, ended, late)
    running_tasks.assert_one_job_each(run, PHASES)
    running_tasks.assert_one_job_each(ended, ["ended"])
    running_tasks.assert_one_job_each(late, ["late"])


def test_tasks_succeed_when_the_api_server_is_unreachable_for_30_seconds(running_tasks, airflow, proxy):
    runs = [running_tasks.start(dag) for dag in ("deferred", "on_worker")]
    wait_for_airflow(lambda: all(running_tasks.is_waited_for(run) for run in runs), 120)
    proxy.disconnect()
    disconnected_at = time.monotonic()
    running_tasks.release_all()  # the jobs end while nothing can receive their events
    wait_for_airflow(lambda: time.monotonic() - disconnected_at > 30, 40)
    assert {airflow.get_state(run) for run in runs} == {"running"}
    proxy.start_listening()
    running_tasks.wait_for_success(*runs)
    for run in runs:
        assert running_tasks.get_try_number(run, "task") == 1
        running_tasks.assert_one_job_each(run, ["task"])
