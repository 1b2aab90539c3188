"""Tests that kill Airflow's processes at each crash point of a run.

Then Airflow's own retries and its next triggerer continue the run.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

import pytest

from tests.support import crash_points
from tests.support.crash_points import (
    OUTCOME_KNOWN,
    TERMINAL_STATE_SEEN,
    TRIGGER_REASSIGNED,
    WAITING,
    arm_trap,
    reached_by,
    release,
)
from tests.support.standalone import wait_for_airflow
from trainjob.lifecycle import RunKey

pytestmark = [pytest.mark.slow]
SECONDS = 240
ENDED_IMMEDIATELY = (TERMINAL_STATE_SEEN, OUTCOME_KNOWN)  # on a worker, the TrainJob must end for these


class CrashRuns:
    """The tasks of DAG runs, and their traps."""

    def __init__(self, airflow, audit, evidence, folder):
        self.airflow, self._audit, self._evidence, self._folder = airflow, audit, evidence, folder

    def start(self, dag, tasks, action):
        """Start a DAG run with a trap for each task, and return the run's path."""
        for name, point in tasks.items():
            arm_trap(self._folder / name, point, action)
            if point in ENDED_IMMEDIATELY and name.startswith("worker"):
                self.finish_job(name)
        return self.airflow.start_run(dag, folder=str(self._folder))

    def trap_folder(self, name):
        return self._folder / name

    def finish_job(self, name):
        (self.trap_folder(name) / "go").touch()

    def repair_command(self, name):
        """Make the task's command succeed from now on."""
        (self.trap_folder(name) / "mended").touch()

    def get_task_states(self, run):
        """Return each task's state and number of tries."""
        listed = self.airflow.request("GET", f"{run}/taskInstances")["task_instances"]
        return {found["task_id"]: (found["state"], found["try_number"]) for found in listed}

    def wait_for_success(self, run):
        wait_for_airflow(lambda: self.airflow.get_state(run) in ("success", "failed"), SECONDS)
        print(self.get_task_states(run))
        assert self.airflow.get_state(run) == "success"

    def run_key(self, run, name):
        _, _, _, _, dag, _, run_id = run.split("/")
        return RunKey("airflow", dag, name, run_id, "", self.airflow.environment["AIRFLOW__API__BASE_URL"])

    def get_result(self, run, name):
        found = self.airflow.request("GET", f"{run}/taskInstances/{name}/xcomEntries/return_value")["value"]
        return json.loads(found) if isinstance(found, str) else found

    def record_audit(self, run, name, point, actor, beside, kills=1):
        """Record what the API server saw of a task's TrainJobs, and return the run key."""
        key = self.run_key(run, name)
        self._audit.record_and_check(self._evidence, key, point=point, actor=actor, beside=beside, kills=kills)
        return key

    def check_result(self, run, name, point, actor, beside="alone", kills=1):
        """Compare the API server's record with the task's result."""
        assert reached_by(self.trap_folder(name)), name
        key = self.record_audit(run, name, point.name, actor, beside, kills)
        result = self.get_result(run, name)
        assert not self._audit.active_uids(key), name
        assert self._audit.end_states(key)[result["uid"]] == result["phase"] == "Complete", name
        assert result["uid"] == self._audit.created_uids(key)[-1], name


@pytest.fixture
def crash_runs(airflow, audit, evidence, tmp_path):
    return CrashRuns(airflow, audit, evidence, tmp_path)


def test_airflow_completes_the_tasks_whose_worker_process_dies(crash_runs, airflow, audit):
    dying = {f"deferred-{point.slug}": point for point in crash_points.DEFERRED_TASK_POINTS}
    dying |= {f"worker-{point.slug}": point for point in crash_points.WORKER_TASK_POINTS}
    zombies = {f"zombie-{point.slug}": point for point in crash_points.ZOMBIE_POINTS}
    second = crash_runs.start("zombies", zombies, "hold")
    first = crash_runs.start("crashing", dying, "die")
    orphans = {}

    def ended():
        tasks = crash_runs.get_task_states(first)
        for name in dying:
            if reached_by(crash_runs.trap_folder(name)) or tasks[name][0] == "deferred":
                crash_runs.finish_job(name)
            if reached_by(crash_runs.trap_folder(name)) and tasks[name][1] > 1:
                crash_runs.repair_command(name)
        drive_zombies(crash_runs, second, zombies, orphans, audit)
        return all(airflow.get_state(run) in ("success", "failed") for run in (first, second))

    wait_for_airflow(ended, SECONDS)
    print(crash_runs.get_task_states(first), crash_runs.get_task_states(second))
    assert airflow.get_state(first) == airflow.get_state(second) == "success"
    for name, point in dying.items():
        crash_runs.check_result(first, name, point, "Airflow worker")
    for name, point in zombies.items():
        crash_runs.check_result(second, name, point, "Airflow worker", "racing")
    wait_for_airflow(lambda: not any(is_alive(pid) for pid in orphans.values()), 60)


def drive_zombies(crash_runs, run, tasks, orphans, audit):
    """Kill the supervisors of held tasks, and release the tasks once their second try runs."""
    states = crash_runs.get_task_states(run)
    for name, point in tasks.items():
        folder = crash_runs.trap_folder(name)
        if point is OUTCOME_KNOWN:
            crash_runs.finish_job(name)
        pid = reached_by(folder)
        if pid and name not in orphans:
            orphans[name] = pid
            os.kill(parent_pid(pid), signal.SIGKILL)
        state, tries = states[name]
        is_second_try = tries > 1 and state in ("running", "success")
        if pid and is_second_try and audit.created_uids(crash_runs.run_key(run, name)):
            release(folder)
            crash_runs.finish_job(name)


def parent_pid(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def is_alive(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def hold_triggers(crash_runs):
    """Start a DAG run whose triggers are held, one at each trigger point."""
    tasks = {f"trigger-{point.slug}": point for point in crash_points.TRIGGER_POINTS}
    run = crash_runs.start("triggers", tasks, "hold")
    for name, point in tasks.items():
        if point is WAITING:  # a hold would block the event loop, so this point is only recorded
            arm_trap(crash_runs.trap_folder(name), point, "pass")

    def all_reached():
        states = crash_runs.get_task_states(run)
        for name, point in tasks.items():
            if states[name][0] == "deferred" and point is not WAITING:
                crash_runs.finish_job(name)
        return all(reached_by(crash_runs.trap_folder(name)) for name in tasks)

    wait_for_airflow(all_reached, SECONDS)
    return run, tasks


def release_triggers(crash_runs, tasks):
    for name in tasks:
        crash_runs.repair_command(name)
        release(crash_runs.trap_folder(name))
        crash_runs.finish_job(name)


def test_the_next_triggerer_completes_the_tasks_of_a_dead_triggerer(crash_runs, airflow):
    run, tasks = hold_triggers(crash_runs)
    airflow.kill_component("triggerer")
    airflow.start_component("triggerer")
    release_triggers(crash_runs, tasks)
    crash_runs.wait_for_success(run)
    for name, point in tasks.items():
        crash_runs.check_result(run, name, point, "Airflow triggerer")
    tries = crash_runs.get_task_states(run)
    # A dead triggerer costs no try.
    assert {tries[name][1] for name, point in tasks.items() if not point.fails_first} == {1}


def test_a_triggerer_that_lost_its_triggers_does_not_end_their_trainjobs(crash_runs, airflow, audit):
    """A stopped triggerer continues after another triggerer has received its triggers.

    Airflow 3.3 then cancels the triggers of the first one as if users had decided about all of their tasks.
    """
    run, tasks = hold_triggers(crash_runs)
    first = airflow.suspend_component("triggerer")
    airflow.start_component("triggerer")
    before = trigger_owners(crash_runs, run)
    wait_for_airflow(lambda: not trigger_owners(crash_runs, run).items() & before.items(), SECONDS)
    waiting = f"trigger-{WAITING.slug}"  # its TrainJob still runs when the first triggerer is notified
    (crash_runs.trap_folder(waiting) / "reached").unlink()
    arm_trap(crash_runs.trap_folder(waiting), TRIGGER_REASSIGNED, "pass")
    release_triggers(crash_runs, [name for name in tasks if name != waiting])
    for pid in first:
        os.kill(pid, signal.SIGCONT)
    wait_for_airflow(lambda: reached_by(crash_runs.trap_folder(waiting)), SECONDS)
    crash_runs.finish_job(waiting)
    crash_runs.wait_for_success(run)
    for name, point in tasks.items():
        crash_runs.check_result(run, name, point, "Airflow triggerer", "racing", kills=0)
        if not point.fails_first:
            assert len(audit.created_uids(crash_runs.run_key(run, name))) == 1, name


def trigger_owners(crash_runs, run):
    """Return the triggerer's ID for each task whose trigger has not fired."""
    listed = crash_runs.airflow.request("GET", f"{run}/taskInstances")["task_instances"]
    return {found["task_id"]: found["triggerer_job"]["id"] for found in listed if found["triggerer_job"]}


def test_a_trainjob_whose_cleanup_dies_is_adopted_after_the_task_is_cleared(crash_runs, airflow, audit):
    """A user has marked the task as failed, so Airflow does not try it again.

    If the process dies before it has deleted the TrainJob, the try after the clearing adopts it.
    """
    on_worker = {f"worker-{point.slug}": point for point in crash_points.KILLED_TASK_POINTS}
    deferred = {f"trigger-{point.slug}": point for point in crash_points.KILLED_TRIGGER_POINTS}
    run = crash_runs.start("killed", on_worker | deferred, "die")
    for name, point in deferred.items():
        arm_trap(crash_runs.trap_folder(name), point, "hold")
    wait_for_airflow(lambda: all(is_waiting(airflow, run, name) for name in on_worker | deferred), SECONDS)
    for name in on_worker | deferred:
        airflow.mark_task(run, name, "failed")
    wait_for_airflow(lambda: all(reached_by(crash_runs.trap_folder(name)) for name in on_worker | deferred), 60)
    airflow.kill_component("triggerer")
    airflow.start_component("triggerer")
    remaining = []
    for actor, tasks in (("Airflow worker", on_worker), ("Airflow triggerer", deferred)):
        for name, point in tasks.items():
            key = crash_runs.record_audit(run, name, f"killed: {point.name}", actor, "alone")
            assert bool(audit.active_uids(key)) == (point.name == "about to clean up"), name
            remaining += [name] if audit.active_uids(key) else []
            release(crash_runs.trap_folder(name))
            airflow.clear_task(run, name)
    wait_for_airflow(lambda: all("adopted" in read_task_log(airflow, run, name, 2) for name in remaining), SECONDS)
    for name in on_worker | deferred:
        crash_runs.finish_job(name)
    crash_runs.wait_for_success(run)
    for name in on_worker | deferred:
        key = crash_runs.run_key(run, name)
        audit.wait_until_current(key)
        assert len(audit.created_uids(key)) == (1 if name in remaining else 2), name
        assert audit.max_active(key) == 1


def is_waiting(airflow, run, name):
    """Return whether the worker or the triggerer has reported that the TrainJob runs."""
    found = airflow.request("GET", f"{run}/taskInstances/{name}")
    if found["state"] == "running":
        return "Running" in read_task_log(airflow, run, name, 1)
    progress = airflow.request("GET", f"{run}/taskInstances/{name}/xcomEntries/progress")
    return found["state"] == "deferred" and bool(progress)


def read_task_log(airflow, run, name, attempt):
    """Return the log that a try has written on its worker; empty if there is none."""
    _, _, _, _, dag, _, run_id = run.split("/")
    folder = Path(airflow.log).parent / "logs" / f"dag_id={dag}" / f"run_id={run_id}" / f"task_id={name}"
    path = folder / f"attempt={attempt}.log"
    return path.read_text() if path.exists() else ""
