"""Airflow's processes die at each point of a run's life; then its own retries, and its next triggerer, go on."""

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

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]
SECONDS = 240
ENDED_IMMEDIATELY = (TERMINAL_STATE_SEEN, OUTCOME_KNOWN)  # on a worker, the job's end is not far


class CrashRuns:
    """The tasks of DAG runs, and their traps."""

    def __init__(self, airflow, audit, evidence, folder):
        self.airflow, self._audit, self._evidence, self._folder = airflow, audit, evidence, folder

    def start(self, dag, tasks, action):
        """A DAG run with a trap for each task."""
        for name, point in tasks.items():
            arm_trap(self._folder / name, point, action)
            if point in ENDED_IMMEDIATELY and name.startswith("worker"):
                self.finish_job(name)
        return self.airflow.start(dag, folder=str(self._folder))

    def trap_folder(self, name):
        return self._folder / name

    def finish_job(self, name):
        (self.trap_folder(name) / "go").touch()

    def repair_command(self, name):
        """From now on, its command does not fail."""
        (self.trap_folder(name) / "mended").touch()

    def get_task_states(self, run):
        """Each task's state and number of tries."""
        listed = self.airflow.ask("GET", f"{run}/taskInstances")["task_instances"]
        return {found["task_id"]: (found["state"], found["try_number"]) for found in listed}

    def run_key(self, run, name):
        _, _, _, _, dag, _, run_id = run.split("/")
        return RunKey("airflow", dag, name, run_id, "", self.airflow._environment["AIRFLOW__API__BASE_URL"])

    def get_result(self, run, name):
        found = self.airflow.ask("GET", f"{run}/taskInstances/{name}/xcomEntries/return_value")["value"]
        return json.loads(found) if isinstance(found, str) else found

    def record_audit(self, run, name, point, actor, beside, kills=1):
        """What the API server saw of a task."""
        key = self.run_key(run, name)
        self._audit.judge(self._evidence, key, point=point, actor=actor, beside=beside, kills=kills)
        return key

    def check_result(self, run, name, point, actor, beside="alone", kills=1):
        """What the API server saw, beside the task's result."""
        assert reached_by(self.trap_folder(name)), name
        key = self.record_audit(run, name, point.name, actor, beside, kills)
        told = self.get_result(run, name)
        assert not self._audit.active(key), name
        assert self._audit.ends(key)[told["uid"]] == told["phase"] == "Complete", name
        assert told["uid"] == self._audit.made(key)[-1], name


@pytest.fixture
def crash_runs(airflow, audit, evidence, tmp_path):
    return CrashRuns(airflow, audit, evidence, tmp_path)


def test_tasks_die_alone_and_beside_their_second_try(crash_runs, airflow, audit):
    dying = {f"deferred-{point.slug}": point for point in crash_points.DEFERRED_TASK_POINTS}
    dying |= {f"worker-{point.slug}": point for point in crash_points.WORKER_TASK_POINTS}
    zombies = {f"zombie-{point.slug}": point for point in crash_points.ZOMBIE_POINTS}
    second = crash_runs.start("zombies", zombies, "hold")
    first = crash_runs.start("crashing", dying, "die")
    orphans = {}

    def ended():
        tasks = crash_runs.tasks(first)
        for name in dying:
            if reached_by(crash_runs.place(name)) or tasks[name][0] == "deferred":
                crash_runs.let_job_end(name)
            if reached_by(crash_runs.place(name)) and tasks[name][1] > 1:
                crash_runs.mend(name)
        drive_zombies(crash_runs, second, zombies, orphans, audit)
        return all(airflow.state(run) in ("success", "failed") for run in (first, second))

    wait_for_airflow(ended, SECONDS)
    print(crash_runs.tasks(first), crash_runs.tasks(second))
    assert airflow.state(first) == airflow.state(second) == "success"
    for name, point in dying.items():
        crash_runs.check(first, name, point, "Airflow worker")
    for name, point in zombies.items():
        crash_runs.check(second, name, point, "Airflow worker", "racing")
    wait_for_airflow(lambda: not any(is_alive(pid) for pid in orphans.values()), 60)


def drive_zombies(crash_runs, run, tasks, orphans, audit):
    """Kill the supervisor of each that is held, and let the task's process go on beside its second try."""
    states = crash_runs.tasks(run)
    for name, point in tasks.items():
        place = crash_runs.place(name)
        if point is OUTCOME_KNOWN:
            crash_runs.let_job_end(name)
        pid = reached_by(place)
        if pid and name not in orphans:
            orphans[name] = pid
            os.kill(parent_pid(pid), signal.SIGKILL)
        state, tries = states[name]
        if pid and tries > 1 and (state == "running" or state == "success") and audit.made(crash_runs.key(run, name)):
            release(place)
            crash_runs.let_job_end(name)


def parent_pid(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def is_alive(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def hold_triggers(crash_runs):
    """A DAG run with a trigger at each of its points."""
    tasks = {f"trigger-{point.slug}": point for point in crash_points.TRIGGER_POINTS}
    run = crash_runs.start("triggers", tasks, "hold")
    for name, point in tasks.items():
        if point is WAITING:  # on the event loop: it waits anyway
            arm_trap(crash_runs.place(name), point, "pass")

    def all_there():
        states = crash_runs.tasks(run)
        for name, point in tasks.items():
            if states[name][0] == "deferred" and point is not WAITING:
                crash_runs.let_job_end(name)
        return all(reached_by(crash_runs.place(name)) for name in tasks)

    wait_for_airflow(all_there, SECONDS)
    return run, tasks


def release_triggers(crash_runs, tasks):
    for name in tasks:
        crash_runs.mend(name)
        release(crash_runs.place(name))
        crash_runs.let_job_end(name)


def test_the_triggerer_dies(crash_runs, airflow):
    run, tasks = hold_triggers(crash_runs)
    airflow.kill_part("triggerer")
    airflow.start_part("triggerer")
    release_triggers(crash_runs, tasks)
    wait_for_airflow(lambda: airflow.state(run) in ("success", "failed"), SECONDS)
    print(crash_runs.tasks(run))
    assert airflow.state(run) == "success"
    for name, point in tasks.items():
        crash_runs.check(run, name, point, "Airflow triggerer")
    tries = crash_runs.tasks(run)
    assert {tries[name][1] for name, point in tasks.items() if not point.fails_first} == {1}  # its death costs none


def test_the_triggerer_is_taken_for_dead_and_goes_on_beside_the_next_one(crash_runs, airflow, audit):
    """It hears that its triggers are another's now as if persons had decided about all of their tasks (Airflow 3.3)."""
    run, tasks = hold_triggers(crash_runs)
    first = list(airflow.processes("triggerer"))
    for pid in first:
        os.kill(pid, signal.SIGSTOP)
    airflow.start_part("triggerer")
    before = trigger_owners(crash_runs, run)
    wait_for_airflow(lambda: not trigger_owners(crash_runs, run).items() & before.items(), SECONDS)
    waiting = f"trigger-{WAITING.slug}"  # its TrainJob works while the first triggerer is told
    (crash_runs.place(waiting) / "reached").unlink()
    arm_trap(crash_runs.place(waiting), TRIGGER_REASSIGNED, "pass")
    release_triggers(crash_runs, [name for name in tasks if name != waiting])
    for pid in first:
        os.kill(pid, signal.SIGCONT)
    wait_for_airflow(lambda: reached_by(crash_runs.place(waiting)), SECONDS)
    crash_runs.let_job_end(waiting)
    wait_for_airflow(lambda: airflow.state(run) in ("success", "failed"), SECONDS)
    print(crash_runs.tasks(run))
    assert airflow.state(run) == "success"
    for name, point in tasks.items():
        crash_runs.check(run, name, point, "Airflow triggerer", "racing", kills=0)
        if not point.fails_first:
            assert len(audit.made(crash_runs.key(run, name))) == 1, name


def trigger_owners(crash_runs, run):
    """Which triggerer has each trigger that has not fired."""
    listed = crash_runs.there.ask("GET", f"{run}/taskInstances")["task_instances"]
    return {found["task_id"]: found["triggerer_job"]["id"] for found in listed if found["triggerer_job"]}


def test_who_cleans_up_dies(crash_runs, airflow, audit):
    """A person has marked the task failed, so nobody tries again: what is left is taken over when it is cleared."""
    on_worker = {f"worker-{point.slug}": point for point in crash_points.KILLED_TASK_POINTS}
    deferred = {f"trigger-{point.slug}": point for point in crash_points.KILLED_TRIGGER_POINTS}
    run = crash_runs.start("killed", on_worker | deferred, "die")
    for name, point in deferred.items():
        arm_trap(crash_runs.place(name), point, "hold")
    wait_for_airflow(lambda: all(is_waiting(airflow, run, name) for name in on_worker | deferred), SECONDS)
    for name in on_worker | deferred:
        airflow.mark(run, name, "failed")
    wait_for_airflow(lambda: all(reached_by(crash_runs.place(name)) for name in on_worker | deferred), 60)
    airflow.kill_part("triggerer")
    airflow.start_part("triggerer")
    left = []
    for actor, tasks in (("Airflow worker", on_worker), ("Airflow triggerer", deferred)):
        for name, point in tasks.items():
            key = crash_runs.note(run, name, f"killed: {point.name}", actor, "alone")
            assert bool(audit.active(key)) == (point.name == "about to clean up"), name
            left += [name] if audit.active(key) else []
            release(crash_runs.place(name))
            airflow.clear(run, name)
    wait_for_airflow(lambda: all("adopted" in read_task_log(airflow, run, name, 2) for name in left), SECONDS)
    for name in on_worker | deferred:
        crash_runs.let_job_end(name)
    wait_for_airflow(lambda: airflow.state(run) in ("success", "failed"), SECONDS)
    assert airflow.state(run) == "success"
    for name in on_worker | deferred:
        key = crash_runs.key(run, name)
        audit.catch_up(key)
        assert len(audit.made(key)) == (1 if name in left else 2), name
        assert audit.most_active(key) == 1


def is_waiting(airflow, run, name):
    """Whether its process, or the triggerer, has told of the TrainJob's progress or follows it."""
    found = airflow.ask("GET", f"{run}/taskInstances/{name}")
    if found["state"] == "running":
        return "Running" in read_task_log(airflow, run, name, 1)
    told = airflow.ask("GET", f"{run}/taskInstances/{name}/xcomEntries/progress")
    return found["state"] == "deferred" and bool(told)


def read_task_log(airflow, run, name, attempt):
    """What a try has written on its worker."""
    _, _, _, _, dag, _, run_id = run.split("/")
    folder = Path(airflow.log).parent / "logs" / f"dag_id={dag}" / f"run_id={run_id}" / f"task_id={name}"
    path = folder / f"attempt={attempt}.log"
    return path.read_text() if path.exists() else ""
