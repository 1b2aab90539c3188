"""Airflow's processes die at each point of a run's life; then its own retries, and its next triggerer, go on."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

import pytest

from tests.support import crash_points
from tests.support.crash_points import HANDED_OVER, KNOWN, TERMINAL, WAITING, arm, let_go, reached
from tests.support.standalone import wait_for
from trainjob.lifecycle import RunKey

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]
SECONDS = 240
ENDS_AT_ONCE = (TERMINAL, KNOWN)  # on a worker, the job's end is not far


class Crashes:
    """The tasks of DAG runs, and their traps."""

    def __init__(self, there, audit, evidence, folder):
        self.there, self._audit, self._evidence, self._folder = there, audit, evidence, folder

    def start(self, dag, tasks, how):
        """A DAG run with a trap for each task."""
        for name, point in tasks.items():
            arm(self._folder / name, point, how)
            if point in ENDS_AT_ONCE and name.startswith("worker"):
                self.let_job_end(name)
        return self.there.start(dag, folder=str(self._folder))

    def place(self, name):
        return self._folder / name

    def let_job_end(self, name):
        (self.place(name) / "go").touch()

    def mend(self, name):
        """From now on, its command does not fail."""
        (self.place(name) / "mended").touch()

    def tasks(self, run):
        """Each task's state and number of tries."""
        listed = self.there.ask("GET", f"{run}/taskInstances")["task_instances"]
        return {found["task_id"]: (found["state"], found["try_number"]) for found in listed}

    def key(self, run, name):
        _, _, _, _, dag, _, run_id = run.split("/")
        return RunKey("airflow", dag, name, run_id, "", self.there._environment["AIRFLOW__API__BASE_URL"])

    def returned(self, run, name):
        found = self.there.ask("GET", f"{run}/taskInstances/{name}/xcomEntries/return_value")["value"]
        return json.loads(found) if isinstance(found, str) else found

    def note(self, run, name, point, actor, beside, kills=1):
        """What the API server saw of a task."""
        key = self.key(run, name)
        self._audit.judge(self._evidence, key, point=point, actor=actor, beside=beside, kills=kills)
        return key

    def check(self, run, name, point, actor, beside="alone", kills=1):
        """What the API server saw, beside the task's result."""
        assert reached(self.place(name)), name
        key = self.note(run, name, point.name, actor, beside, kills)
        told = self.returned(run, name)
        assert not self._audit.active(key), name
        assert self._audit.ends(key)[told["uid"]] == told["phase"] == "Complete", name
        assert told["uid"] == self._audit.made(key)[-1], name


@pytest.fixture
def crashes(there, audit, evidence, tmp_path):
    return Crashes(there, audit, evidence, tmp_path)


def test_tasks_die_alone_and_beside_their_second_try(crashes, there, audit):
    dying = {f"deferred-{point.slug}": point for point in crash_points.DEFERRED_TASK}
    dying |= {f"worker-{point.slug}": point for point in crash_points.TASK_ON_WORKER}
    zombies = {f"zombie-{point.slug}": point for point in crash_points.ZOMBIE}
    second = crashes.start("zombies", zombies, "hold")
    first = crashes.start("crashing", dying, "die")
    orphans = {}

    def ended():
        tasks = crashes.tasks(first)
        for name in dying:
            if reached(crashes.place(name)) or tasks[name][0] == "deferred":
                crashes.let_job_end(name)
            if reached(crashes.place(name)) and tasks[name][1] > 1:
                crashes.mend(name)
        drive_zombies(crashes, second, zombies, orphans, audit)
        return all(there.state(run) in ("success", "failed") for run in (first, second))

    wait_for(ended, SECONDS)
    print(crashes.tasks(first), crashes.tasks(second))
    assert there.state(first) == there.state(second) == "success"
    for name, point in dying.items():
        crashes.check(first, name, point, "Airflow worker")
    for name, point in zombies.items():
        crashes.check(second, name, point, "Airflow worker", "racing")
    wait_for(lambda: not any(lives(pid) for pid in orphans.values()), 60)


def drive_zombies(crashes, run, tasks, orphans, audit):
    """Kill the supervisor of each that is held, and let the task's process go on beside its second try."""
    states = crashes.tasks(run)
    for name, point in tasks.items():
        place = crashes.place(name)
        if point is KNOWN:
            crashes.let_job_end(name)
        pid = reached(place)
        if pid and name not in orphans:
            orphans[name] = pid
            os.kill(parent(pid), signal.SIGKILL)
        state, tries = states[name]
        if pid and tries > 1 and (state == "running" or state == "success") and audit.made(crashes.key(run, name)):
            let_go(place)
            crashes.let_job_end(name)


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def lives(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def held_in_the_triggerer(crashes):
    """A DAG run with a trigger at each of its points."""
    tasks = {f"trigger-{point.slug}": point for point in crash_points.TRIGGER}
    run = crashes.start("triggers", tasks, "hold")
    for name, point in tasks.items():
        if point is WAITING:  # on the event loop: it waits anyway
            arm(crashes.place(name), point, "pass")

    def all_there():
        states = crashes.tasks(run)
        for name, point in tasks.items():
            if states[name][0] == "deferred" and point is not WAITING:
                crashes.let_job_end(name)
        return all(reached(crashes.place(name)) for name in tasks)

    wait_for(all_there, SECONDS)
    return run, tasks


def let_triggers_go(crashes, tasks):
    for name in tasks:
        crashes.mend(name)
        let_go(crashes.place(name))
        crashes.let_job_end(name)


def test_the_triggerer_dies(crashes, there):
    run, tasks = held_in_the_triggerer(crashes)
    there.kill_part("triggerer")
    there.start_part("triggerer")
    let_triggers_go(crashes, tasks)
    wait_for(lambda: there.state(run) in ("success", "failed"), SECONDS)
    print(crashes.tasks(run))
    assert there.state(run) == "success"
    for name, point in tasks.items():
        crashes.check(run, name, point, "Airflow triggerer")
    tries = crashes.tasks(run)
    assert {tries[name][1] for name, point in tasks.items() if not point.fails_first} == {1}  # its death costs none


def test_the_triggerer_is_taken_for_dead_and_goes_on_beside_the_next_one(crashes, there, audit):
    """It hears that its triggers are another's now as if persons had decided about all of their tasks (Airflow 3.3)."""
    run, tasks = held_in_the_triggerer(crashes)
    first = list(there.processes("triggerer"))
    for pid in first:
        os.kill(pid, signal.SIGSTOP)
    there.start_part("triggerer")
    before = owners(crashes, run)
    wait_for(lambda: not owners(crashes, run).items() & before.items(), SECONDS)
    waiting = f"trigger-{WAITING.slug}"  # its TrainJob works while the first triggerer is told
    (crashes.place(waiting) / "reached").unlink()
    arm(crashes.place(waiting), HANDED_OVER, "pass")
    let_triggers_go(crashes, [name for name in tasks if name != waiting])
    for pid in first:
        os.kill(pid, signal.SIGCONT)
    wait_for(lambda: reached(crashes.place(waiting)), SECONDS)
    crashes.let_job_end(waiting)
    wait_for(lambda: there.state(run) in ("success", "failed"), SECONDS)
    print(crashes.tasks(run))
    assert there.state(run) == "success"
    for name, point in tasks.items():
        crashes.check(run, name, point, "Airflow triggerer", "racing", kills=0)
        if not point.fails_first:
            assert len(audit.made(crashes.key(run, name))) == 1, name


def owners(crashes, run):
    """Which triggerer has each trigger that has not fired."""
    listed = crashes.there.ask("GET", f"{run}/taskInstances")["task_instances"]
    return {found["task_id"]: found["triggerer_job"]["id"] for found in listed if found["triggerer_job"]}


def test_who_cleans_up_dies(crashes, there, audit):
    """A person has marked the task failed, so nobody tries again: what is left is taken over when it is cleared."""
    on_worker = {f"worker-{point.slug}": point for point in crash_points.KILLED_TASK}
    deferred = {f"trigger-{point.slug}": point for point in crash_points.KILLED_TRIGGER}
    run = crashes.start("killed", on_worker | deferred, "die")
    for name, point in deferred.items():
        arm(crashes.place(name), point, "hold")
    wait_for(lambda: all(waits(there, run, name) for name in on_worker | deferred), SECONDS)
    for name in on_worker | deferred:
        there.mark(run, name, "failed")
    wait_for(lambda: all(reached(crashes.place(name)) for name in on_worker | deferred), 60)
    there.kill_part("triggerer")
    there.start_part("triggerer")
    left = []
    for actor, tasks in (("Airflow worker", on_worker), ("Airflow triggerer", deferred)):
        for name, point in tasks.items():
            key = crashes.note(run, name, f"killed: {point.name}", actor, "alone")
            assert bool(audit.active(key)) == (point.name == "about to clean up"), name
            left += [name] if audit.active(key) else []
            let_go(crashes.place(name))
            there.clear(run, name)
    wait_for(lambda: all("adopted" in task_log(there, run, name, 2) for name in left), SECONDS)
    for name in on_worker | deferred:
        crashes.let_job_end(name)
    wait_for(lambda: there.state(run) in ("success", "failed"), SECONDS)
    assert there.state(run) == "success"
    for name in on_worker | deferred:
        key = crashes.key(run, name)
        audit.catch_up(key)
        assert len(audit.made(key)) == (1 if name in left else 2), name
        assert audit.most_active(key) == 1


def waits(there, run, name):
    """Whether its process, or the triggerer, has told of the TrainJob's progress or follows it."""
    found = there.ask("GET", f"{run}/taskInstances/{name}")
    if found["state"] == "running":
        return "Running" in task_log(there, run, name, 1)
    told = there.ask("GET", f"{run}/taskInstances/{name}/xcomEntries/progress")
    return found["state"] == "deferred" and bool(told)


def task_log(there, run, name, attempt):
    """What a try has written on its worker."""
    _, _, _, _, dag, _, run_id = run.split("/")
    folder = Path(there.log).parent / "logs" / f"dag_id={dag}" / f"run_id={run_id}" / f"task_id={name}"
    path = folder / f"attempt={attempt}.log"
    return path.read_text() if path.exists() else ""
