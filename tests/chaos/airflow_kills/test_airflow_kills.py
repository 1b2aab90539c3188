"""A person decides about a task, or a part of Airflow or of the cluster dies: what becomes of TrainJob and task.

Everything is real: Airflow's parts are processes of their own and get SIGKILL, the cluster's API server refuses
connections. One DAG run holds a task in each phase of its life, so that one kill is asked about all of them.
"""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.support.standalone import wait_for
from trainjob.status import Phase, judge

pytestmark = pytest.mark.timeout(600)
SECONDS = 5.0  # after a person's decision, the job is gone
CREATION = '"trainjob.dev/task": "creating"'  # only in the request that creates the job of that task
PHASES = ("creating", "deferred", "resumed", "on_worker")


class Lives:
    """The tasks of one test, each held in a phase."""

    def __init__(self, there, audit, cluster, proxy, folder):
        self.there, self._audit, self._cluster, self._proxy, self._folder = there, audit, cluster, proxy, folder

    def start(self, dag):
        return self.there.start(dag, go=str(self._folder))

    def works(self, run, task):
        """Whether the task's newest job has a pod."""
        jobs = list(self._audit.jobs(run, task).values())
        return bool(jobs and self._cluster.list_pods(jobs[-1]["metadata"]["name"], "default"))

    def is_complete(self, run, task):
        return any(judge(job).phase is Phase.COMPLETE for job in self._audit.jobs(run, task).values())

    def waits(self, run, task="task"):
        """Whether a worker or a triggerer has begun to wait for the task's job."""
        return (self.there.state(run, task) == "running" or self.is_deferred(run, task)) and self.works(run, task)

    def is_deferred(self, run, task="task"):
        """Whether a triggerer has the task: a job may be at work before the worker has let go of it."""
        found = self.there.ask("GET", f"{run}/taskInstances/{task}")
        return found["state"] == "deferred" and found["triggerer_job"] is not None

    def shows_progress(self, run):
        """Whether the triggerer has written for a task: the first time costs a new one seconds without a pause."""
        return self.there.ask("GET", f"{run}/taskInstances/task/xcomEntries/progress")

    def in_every_phase(self):
        """A DAG run with a task in each of the phases, and one with a task whose job has ended and that waits on."""
        self._proxy.hold(CREATION)
        run = self.start("phases")
        self.end_when_deferred(run, "resumed")
        wait_for(lambda: self.is_in_every_phase(run), 90)
        ended = self.start("ended")
        self.end_when_deferred(ended, "ended")
        wait_for(lambda: self.is_complete(ended, "ended"), 15)
        assert self.there.state(ended, "ended") == "deferred"
        assert self.is_in_every_phase(run)
        return run, ended

    def end_when_deferred(self, run, task):
        """A job that has ended before is not waited for in the triggerer."""
        wait_for(lambda: self.there.state(run, task) == "deferred", 60)
        (self._folder / f"{task}.ends").touch()

    def is_in_every_phase(self, run):
        listed = self.there.ask("GET", f"{run}/taskInstances")["task_instances"]
        states = {found["task_id"]: found["state"] for found in listed}
        return (
            states == {"creating": "running", "deferred": "deferred", "resumed": "running", "on_worker": "running"}
            and self._audit.jobs(run, "creating")
            and self.works(run, "deferred")
            and (self._folder / "resumed.waits").exists()
            and self.works(run, "on_worker")
        )

    def let_go(self):
        """What was held goes on."""
        self._proxy.release()
        for name in (*PHASES, "resumed.ends", "ended.ends", "task", "late"):
            (self._folder / name).touch()

    def all_end_well(self, *runs, seconds=150):
        def ended():
            states = [self.there.state(run) for run in runs]
            assert "failed" not in states
            return set(states) == {"success"}

        wait_for(ended, seconds)

    def tries(self, run, task):
        return self.there.ask("GET", f"{run}/taskInstances/{task}")["try_number"]

    def assert_one_job_each(self, run, tasks):
        made = {task: len(self._audit.jobs(run, task)) for task in tasks}
        assert made == dict.fromkeys(tasks, 1)


@pytest.fixture
def lives(there, audit, cluster, proxy, tmp_path):
    made = Lives(there, audit, cluster, proxy, tmp_path)
    yield made
    made.let_go()


def task_processes(there):
    """The processes that run a task's own code."""
    return [pid for pid, title in there.processes("scheduler").items() if "task runner" in title]


def busy_workers(there):
    """The LocalExecutor's workers that have a task: they supervise it and tell Airflow of it."""
    workers = {pid: title for pid, title in there.processes("scheduler").items() if "LocalExecutor" in title}
    return [pid for pid, title in workers.items() if "<idle>" not in title]


def idle_workers(there):
    return [pid for pid, title in there.processes("scheduler").items() if "<idle>" in title]


# -- a person decides --------------------------------------------------------------------------------------------------


def test_a_decision_ends_the_job_of_a_deferred_or_waiting_task(lives, there, audit):
    decisions = ("failed", "success", "clear")
    runs = {(dag, decision): lives.start(dag) for dag in ("deferred", "on_worker") for decision in decisions}
    wait_for(lambda: all(lives.waits(run) for run in runs.values()), 120)
    wait_for(lambda: lives.shows_progress(runs["deferred", "failed"]), 60)
    took = {}
    for (dag, decision), run in runs.items():
        [uid] = audit.jobs(run)
        if decision == "clear":
            there.clear(run, "task")
        else:
            there.mark(run, "task", decision)
        decided = time.monotonic()
        wait_for(lambda uid=uid: audit.gone_at(uid), 30)
        took[dag, decision] = audit.gone_at(uid) - decided
    print("seconds from the decision to the job's end:", took)
    assert max(took.values()) <= SECONDS
    lives.let_go()
    for (dag, decision), run in runs.items():
        if decision == "clear":
            lives.all_end_well(run)
        assert there.state(run, "task") == ("failed" if decision == "failed" else "success"), dag
        assert len(audit.jobs(run)) == (2 if decision == "clear" else 1)


def test_a_decision_while_the_job_is_being_created_ends_it(lives, there, audit, proxy):
    proxy.hold(CREATION)
    run = lives.start("creating")
    wait_for(lambda: audit.jobs(run), 60)
    there.mark(run, "creating", "failed")
    decided = time.monotonic()
    proxy.release()
    [uid] = audit.jobs(run)
    wait_for(lambda: audit.gone_at(uid), 30)
    assert audit.gone_at(uid) - decided <= SECONDS


def test_finished_work_is_repeated_after_a_clear_though_the_new_try_is_killed_at_once(lives, there, audit):
    (lives._folder / "task").touch()
    run = lives.start("deferred")
    lives.all_end_well(run)
    there.clear(run, "task")
    wait_for(lambda: lives.tries(run, "task") == 2 and there.state(run, "task") == "running", 60)
    for pid in task_processes(there):
        os.kill(pid, signal.SIGKILL)
    lives.all_end_well(run)
    assert len(audit.jobs(run)) == 2


def test_a_decision_while_no_triggerer_runs_is_acted_on_by_the_next_sweep(lives, there, audit, cluster, evidence):
    decided, other = lives.start("deferred"), lives.start("deferred")
    wait_for(lambda: all(lives.is_deferred(run) and lives.works(run, "task") for run in (decided, other)), 120)
    there.kill_part("triggerer")
    there.mark(decided, "task", "failed")
    there.start_part("triggerer")
    wait_for(there.is_healthy, 120)
    [uid], [kept] = audit.jobs(decided), audit.jobs(other)
    left = sum(job["metadata"]["uid"] == uid for job in cluster.list_trainjobs("default"))
    assert left == 1  # nobody was there to be told
    sweep = there.start("sweeping")
    lives.all_end_well(sweep)
    assert audit.gone_at(uid)
    assert audit.gone_at(kept) is None
    lives.let_go()
    lives.all_end_well(other)
    lives.assert_one_job_each(other, ["task"])
    evidence("faults", fault="Airflow: a decision while no triggerer runs", runs=1, result=f"{left} left, then swept")


# -- something dies ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("victims", [task_processes, busy_workers])
def test_workers_are_killed_in_every_phase(lives, there, victims):
    run, ended = lives.in_every_phase()
    for pid in victims(there):
        os.kill(pid, signal.SIGKILL)
    lives.let_go()
    lives.all_end_well(run, ended)
    lives.assert_one_job_each(run, PHASES)
    lives.assert_one_job_each(ended, ["ended"])


def test_the_triggerer_is_killed_in_every_phase(lives, there):
    run, ended = lives.in_every_phase()
    there.kill_part("triggerer")
    there.start_part("triggerer")
    wait_for(there.is_healthy, 120)
    lives.let_go()
    lives.all_end_well(run, ended)
    lives.assert_one_job_each(run, PHASES)
    lives.assert_one_job_each(ended, ["ended"])
    assert {lives.tries(run, task) for task in PHASES} == {1}


def test_the_scheduler_is_killed_in_every_phase(lives, there):
    run, ended = lives.in_every_phase()
    idle = idle_workers(there)
    for pid in idle:
        os.kill(pid, signal.SIGSTOP)  # so that the next task stays queued
    late = lives.start("late")
    wait_for(lambda: there.state(late, "late") == "queued", 60)
    there.kill_only("scheduler")
    for pid in idle:
        os.kill(pid, signal.SIGKILL)
    there.start_part("scheduler")
    wait_for(there.is_healthy, 120)
    lives.let_go()
    lives.all_end_well(run, ended, late)
    lives.assert_one_job_each(run, PHASES)
    lives.assert_one_job_each(ended, ["ended"])
    lives.assert_one_job_each(late, ["late"])


def test_the_clusters_api_server_is_away_for_30_seconds(lives, there, proxy):
    runs = [lives.start(dag) for dag in ("deferred", "on_worker")]
    wait_for(lambda: all(lives.waits(run) for run in runs), 120)
    proxy.go_away()
    away = time.monotonic()
    lives.let_go()  # the jobs end while nobody can hear of it
    wait_for(lambda: time.monotonic() - away > 30, 40)
    assert {there.state(run) for run in runs} == {"running"}
    proxy.come_back()
    lives.all_end_well(*runs)
    for run in runs:
        assert lives.tries(run, "task") == 1
        lives.assert_one_job_each(run, ["task"])
