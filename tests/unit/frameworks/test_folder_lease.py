"""Lease of an output folder, with real processes where they race, die or replace themselves."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.polling import wait_until
from trainjob.errors import OutputInUse
from trainjob.frameworks import folder_lease
from trainjob.frameworks.folder_lease import LEASE_FILE, LEASE_VARIABLE, continue_lease, take_lease
from trainjob.job_variables import JOB_VARIABLE, NAME_VARIABLE, POD_VARIABLE, RUN_VARIABLE

RUN = "run-of-the-step"

# Takes the lease of a folder when its standard input says so, and reports what happened. Then it obeys further lines.
PROGRAM = """
import os, sys
from pathlib import Path
from trainjob.errors import OutputInUse
from trainjob.frameworks import folder_lease

folder_lease._RENEW_EVERY, folder_lease._READ_EVERY = 0.05, 0.02
folder, run, lapses_after = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
print("ready", flush=True)
for line in sys.stdin:
    if line == "take\\n":
        try:
            lease = folder_lease.take_lease(folder, run, lapses_after=lapses_after)
        except OutputInUse as error:
            print("in use:", error.message, flush=True)
            os._exit(3)
    elif line == "fork\\n":
        child = os.fork()
        if not child:
            sys.exit(0)
        os.waitpid(child, 0)
    elif line == "exit\\n":
        sys.exit(143)
    else:
        getattr(lease, line.strip())()
    print("done", line, end="", flush=True)
"""


class Training:
    """A process that takes a lease."""

    def __init__(self, folder, *, run=RUN, trainjob="job-1", pod="pod-1", lapses_after=60.0):
        variables = {NAME_VARIABLE: trainjob, POD_VARIABLE: pod, RUN_VARIABLE: f"airflow/dag/{trainjob}"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(folder), run, str(lapses_after)],
            env={**os.environ, **variables, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def start(self, command):
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()

    def read(self):
        return self.process.stdout.readline().rstrip("\n")

    def do(self, *commands):
        for command in commands:
            self.start(command)
            assert self.read() == f"done {command}"

    def read_result(self):
        """Return `done take` or the error, after the lines that report a wait."""
        while " has the lease of " in (line := self.read()):
            pass
        return line

    def end(self):
        """Wait for the end of the process, and return its messages on stderr."""
        return self.process.communicate(timeout=60)[1]


@pytest.fixture
def start(tmp_path):
    """Return a function that starts a process; all of them end with the test."""
    trainings = []

    def start(**options):
        trainings.append(Training(tmp_path, **options))
        assert trainings[-1].read() == "ready"
        return trainings[-1]

    yield start
    for training in trainings:
        training.process.kill()
        if not training.process.stderr.closed:
            training.end()


@pytest.fixture
def sleeps(monkeypatch):
    """Replace `time.sleep` of the lease.

    `done` has the seconds of each sleep. `then(number, action)` calls a function during a sleep, counted from 1.
    """
    done, actions = [], {}

    def sleep(seconds):
        done.append(seconds)
        actions.pop(len(done), lambda: None)()

    monkeypatch.setattr(folder_lease, "time", SimpleNamespace(sleep=sleep, time=time.time))
    return SimpleNamespace(done=done, then=actions.__setitem__)


@pytest.fixture
def take(tmp_path, monkeypatch, sleeps):
    """Return a function that takes a lease in this process as a given pod.

    Sleeps are counted from the beginning of the last one.
    """
    taken = []

    def take(run=RUN, *, trainjob="job-1", job="", pod="pod-1", **options):
        variables = {NAME_VARIABLE: trainjob, JOB_VARIABLE: job, POD_VARIABLE: pod, RUN_VARIABLE: "airflow/dag/manual"}
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        sleeps.done.clear()
        taken.append(take_lease(tmp_path, run, **options))
        return taken[-1]

    yield take
    for lease in taken:
        lease.release()


def read_lease(folder):
    return json.loads((folder / LEASE_FILE).read_text())


def list_files(folder):
    return sorted(path.name for path in folder.iterdir())


CHECK = [folder_lease._CHECK_AFTER]


def test_file_names_the_holder(tmp_path, take):
    take(lapses_after=600)
    found = read_lease(tmp_path)
    assert len(found.pop("nonce")) == 16
    assert found == {
        "run": RUN,
        "trainjob": "job-1",
        "job": "",
        "pod": "pod-1",
        "workflow_run": "airflow/dag/manual",
        "beat": 0,
        "lapses_after": 600,
    }
    assert list_files(tmp_path) == [LEASE_FILE]


def test_folder_is_created(tmp_path):
    lease = take_lease(tmp_path / "new" / "output", RUN)
    assert lease.is_held()
    lease.release()
    assert list_files(tmp_path / "new" / "output") == []


def test_one_of_eight_processes_gets_the_lease(start):
    trainings = [start(run=f"run-{number}", trainjob=f"job-{number}") for number in range(8)]
    for training in trainings:
        training.start("take\nkeep")
    results = [training.read_result() for training in trainings]
    [holder] = [number for number, result in enumerate(results) if result == "done take"]
    name = f"TrainJob job-{holder} of airflow/dag/job-{holder}, which is still training"
    assert all(result.endswith(name) for number, result in enumerate(results) if number != holder), results


def test_one_of_several_newcomers_replaces_a_dead_holder(start, tmp_path):
    dead = start(trainjob="dead", lapses_after=0.1)
    dead.do("take", "keep")
    dead.process.kill()
    dead.process.wait()
    nonce = read_lease(tmp_path)["nonce"]
    trainings = [start(run=f"run-{number}", trainjob=f"job-{number}") for number in range(4)]
    for training in trainings:
        training.start("take")
    holders = [training for training in trainings if training.read_result() == "done take"]
    # A newcomer that was suspended before its replacement makes a holder lose later: at the first renewal.
    for training in holders:
        training.start("_renew")
    assert [training.read() for training in holders].count("done _renew") == 1
    assert read_lease(tmp_path)["nonce"] != nonce
    assert list_files(tmp_path) == [LEASE_FILE]


def test_running_holder_of_another_run_refuses(tmp_path, take, sleeps, capsys):
    holder = take()
    sleeps.then(3, holder._renew)
    with pytest.raises(OutputInUse) as caught:
        take("another-run", trainjob="job-9")
    reason = f"{tmp_path} is used by TrainJob job-1 of airflow/dag/manual, which is still training"
    hint = "give each training its own output_path, or start it after the other has ended"
    assert str(caught.value) == f"{reason}\n  -> {hint}"
    assert len(sleeps.done) == 3
    assert capsys.readouterr().out == (
        f"TrainJob job-1 of airflow/dag/manual has the lease of {tmp_path}: checking whether it still runs\n"
    )
    assert holder.is_held()


def test_real_holder_of_another_run_refuses(start):
    start().do("take", "keep")
    newcomer = start(run="another-run", trainjob="job-9")
    newcomer.start("take")
    assert "is used by TrainJob job-1 of airflow/dag/job-1" in newcomer.read_result()


def test_runs_without_identifier_are_different(take, sleeps):
    holder = take("", trainjob="")
    sleeps.then(1, holder._renew)
    with pytest.raises(OutputInUse, match="is used by another training of airflow/dag/manual, which"):
        take("", trainjob="")


def test_killed_holder_expires(start, tmp_path, take, sleeps):
    holder = start(lapses_after=30)
    holder.do("take", "keep")
    holder.process.kill()
    holder.process.wait()
    assert read_lease(tmp_path)["trainjob"] == "job-1"
    lease = take("another-run", trainjob="job-9")
    assert sleeps.done == [folder_lease._READ_EVERY] * 30 + CHECK
    assert lease.is_held()
    assert read_lease(tmp_path)["trainjob"] == "job-9"


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGTERM])
def test_rest_of_a_renewal_is_removed_with_the_holder(start, tmp_path, take, stop):
    holder = start()
    holder.do("take")
    holder.process.send_signal(stop)
    holder.process.wait()
    (tmp_path / f"{LEASE_FILE}.{read_lease(tmp_path)['nonce']}.new").write_text("half a fi")
    take(trainjob="job-2")
    assert list_files(tmp_path) == [LEASE_FILE]


def test_old_file_is_not_observed(tmp_path, take, sleeps):
    take()
    os.utime(tmp_path / LEASE_FILE, (0, time.time() - 3700))
    assert take("another-run").is_held()
    assert sleeps.done == CHECK


def test_next_attempt_replaces_at_once_and_ends_the_old_process(start, tmp_path):
    old = start()
    old.do("take", "keep")
    new = start(trainjob="job-2", pod="pod-2")
    new.do("take", "keep")  # without a line about a wait
    assert old.process.wait(60) == 1
    name = "TrainJob job-2 of airflow/dag/job-2"
    text = f"{name} now has the lease of {tmp_path}: this process ends, because two trainings would mix their files\n"
    assert old.end() == text
    assert new.process.poll() is None
    assert read_lease(tmp_path)["trainjob"] == "job-2"


def test_trainjob_that_was_created_again_replaces_at_once(take, sleeps):
    take(job="uid-1", pod="pod-1")
    assert take(job="uid-2", pod="pod-2").is_held()
    assert sleeps.done == CHECK


def test_restarted_process_of_a_pod_replaces_at_once(take, sleeps):
    take()
    assert take().is_held()
    assert sleeps.done == CHECK


def test_replacement_pod_waits_for_the_release(take, sleeps, capsys, tmp_path):
    earlier = take()
    for number in (20, 40, 60, 80):
        sleeps.then(number, earlier._renew)
    sleeps.then(100, earlier.release)
    assert take(pod="pod-2").is_held()
    assert sleeps.done == [folder_lease._READ_EVERY] * 100 + CHECK
    assert capsys.readouterr().out == (
        f"TrainJob job-1 of airflow/dag/manual has the lease of {tmp_path}: waiting until it ends, at most 600 s\n"
    )


@pytest.mark.parametrize("pod", ["", "pod-2"])
def test_replacement_pod_waits_until_the_lease_expires(take, sleeps, pod):
    earlier = take(pod=pod and "pod-1")  # without the variable, no pod is known to be the same
    sleeps.then(20, earlier._renew)
    assert take(pod=pod).is_held()
    assert sleeps.done == [folder_lease._READ_EVERY] * 80 + CHECK


def test_replacement_pod_waits_for_a_limited_time(take, sleeps):
    earlier = take()
    for number in range(1, 600):
        sleeps.then(number, earlier._renew)
    assert take(pod="pod-2").is_held()
    assert sleeps.done == [folder_lease._READ_EVERY] * 600 + CHECK
    assert not earlier.is_held()


DAMAGED = [
    b"",
    b"\xff\x00",
    b"{",
    b"[" * 100_000,
    b"[]",
    b"null",
    b"{}",
    b'{"nonce": 7, "run": "run-of-the-step", "trainjob": "job-2"}',
    b'{"nonce": "../../../etc/file", "run": "run-of-the-step", "trainjob": "job-2"}',
]


@pytest.mark.parametrize("content", DAMAGED)
def test_damaged_file_is_observed(tmp_path, take, sleeps, content):
    (tmp_path / LEASE_FILE).write_bytes(content)
    assert take().is_held()
    assert sleeps.done == [folder_lease._READ_EVERY] * 60 + CHECK
    assert list_files(tmp_path) == [LEASE_FILE]


def test_file_that_is_being_written_is_in_use(tmp_path, take, sleeps):
    """A process creates the file, and then writes its names."""
    (tmp_path / LEASE_FILE).touch()
    content = json.dumps({"nonce": "0" * 16, "run": "other", "trainjob": "job-\x1b[2J7"})
    sleeps.then(1, lambda: (tmp_path / LEASE_FILE).write_text(content))
    with pytest.raises(OutputInUse, match=r"is used by TrainJob job-\[2J7, which"):
        take()


@pytest.mark.parametrize("value", [1e9, float("nan"), float("inf"), "soon", None, [60]])
def test_duration_in_a_file_is_limited(tmp_path, take, sleeps, value):
    (tmp_path / LEASE_FILE).write_text(json.dumps({"nonce": "0" * 16, "lapses_after": value}))
    assert take().is_held()
    assert len(sleeps.done) in (61, 601)


def test_holder_replaces_a_damaged_file(tmp_path, take):
    lease = take()
    (tmp_path / LEASE_FILE).write_text("{")
    assert lease.is_held()
    lease._renew()
    assert read_lease(tmp_path)["nonce"] == lease._nonce


def test_holder_writes_a_removed_file_again(tmp_path, start):
    holder = start()
    holder.do("take", "keep")
    (tmp_path / LEASE_FILE).unlink()
    wait_until((tmp_path / LEASE_FILE).is_file)
    assert read_lease(tmp_path)["trainjob"] == "job-1"
    assert holder.process.poll() is None


def test_full_disk_does_not_end_the_holder(tmp_path, take, monkeypatch):
    lease, failures, failed, has_space = take(), [], threading.Event(), threading.Event()
    write = Path.write_bytes

    def write_to_full_disk(path, content):
        if has_space.is_set():
            return write(path, content)
        failures.append(path.name)
        if len(failures) == 3:
            failed.set()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", write_to_full_disk)
    monkeypatch.setattr(folder_lease, "_RENEW_EVERY", 0.01)
    lease.keep()
    assert failed.wait(60)
    assert read_lease(tmp_path)["beat"] == 0
    has_space.set()
    wait_until(lambda: read_lease(tmp_path)["beat"] > 5)
    assert lease.is_held()
    lease.release()
    assert not lease._thread.is_alive()


def test_full_disk_refuses_a_newcomer(tmp_path, take, monkeypatch):
    take()
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(Path, "write_bytes", fail_with(errno.ENOSPC))
        take(trainjob="job-2")
    assert read_lease(tmp_path)["trainjob"] == "job-1"


def fail_with(number):
    def fail(*_):
        raise OSError(number, os.strerror(number))

    return fail


def test_file_that_was_replaced_while_it_was_read_is_read_again(take, monkeypatch):
    lease, results = take(), [fail_with(errno.ESTALE)] * 2
    opened = Path.open

    def open_file(path, *arguments, **options):  # threads of other tests' leases open their files meanwhile
        do = results.pop() if results and path == lease._path else opened
        return do(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", open_file)
    assert lease.is_held()
    results += [fail_with(errno.ESTALE)] * 3
    with pytest.raises(OSError, match="Stale file handle"):
        lease.is_held()
    results += [fail_with(errno.EIO)]
    with pytest.raises(OSError, match="Input/output error"):
        lease.is_held()


def test_late_renewal_of_the_replaced_holder_does_not_count(tmp_path, take):
    """The old process has read its own nonce before the replacement, and writes after it."""
    old = take()
    late = (tmp_path / LEASE_FILE).read_bytes()
    new = take(trainjob="job-2")
    (tmp_path / LEASE_FILE).write_bytes(late)
    assert new.is_held()
    new._renew()
    assert read_lease(tmp_path)["trainjob"] == "job-2"
    assert not old.is_held()
    assert new.is_held()


def test_newcomer_that_replaces_last_gets_the_lease(tmp_path, take, sleeps):
    take()
    sleeps.then(1, lambda: replace_lease(tmp_path, trainjob="job-3"))  # during the first check
    with pytest.raises(OutputInUse, match="is used by TrainJob job-3, which"):
        take(trainjob="job-2")
    assert read_lease(tmp_path)["trainjob"] == "job-3"


def replace_lease(folder, **values):
    (folder / LEASE_FILE).write_text(json.dumps({"nonce": "0" * 16, "run": "other", **values}))


def test_file_that_changes_directly_before_the_replacement_stays(tmp_path, take, sleeps, monkeypatch):
    holder, write, renewals = take(), Path.write_bytes, []

    def renew_and_write(path, content):
        if not renewals:
            renewals.append(1)
            holder._renew()
        return write(path, content)

    sleeps.then(61, holder._renew)
    monkeypatch.setattr(Path, "write_bytes", renew_and_write)
    with pytest.raises(OutputInUse):
        take("another-run")
    assert len(sleeps.done) == 61
    assert holder.is_held()
    assert list_files(tmp_path) == [LEASE_FILE]


def test_lease_continues_after_exec(tmp_path):
    second = f"""
import os, sys
from pathlib import Path
from trainjob.frameworks import folder_lease

lease = folder_lease.continue_lease(Path({str(tmp_path)!r}))
assert lease.is_held()
assert {LEASE_VARIABLE!r} not in os.environ
print(os.getpid(), flush=True)
sys.stdin.read()
"""
    first = f"""
import os, sys
from pathlib import Path
from trainjob.frameworks import folder_lease

lease = folder_lease.take_lease(Path({str(tmp_path)!r}), "run:with:colons", lapses_after=600)
lease.hand_over()
print(os.getpid(), Path({str(tmp_path / LEASE_FILE)!r}).read_text(), flush=True)
os.execv(sys.executable, [sys.executable, "-c", {second!r}])
"""
    environment = {**os.environ, NAME_VARIABLE: "job-1", "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", first], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:  # closes stdin, and waits
        pid, _, content = process.stdout.readline().partition(" ")
        assert process.stdout.readline().strip() == pid
        continued = wait_until(lambda: (found := read_lease(tmp_path))["beat"] and found)
        assert continued == {**json.loads(content), "beat": 1, "lapses_after": 60}
    assert process.returncode == 0
    assert list_files(tmp_path) == []


def test_no_lease_continues_without_the_variable(tmp_path, monkeypatch):
    monkeypatch.delenv(LEASE_VARIABLE, raising=False)
    assert continue_lease(tmp_path) is None
    assert list_files(tmp_path) == []


def test_lease_that_another_has_taken_does_not_continue(tmp_path, take, monkeypatch):
    monkeypatch.setenv(LEASE_VARIABLE, "")
    take().hand_over()
    take(trainjob="job-2")
    with pytest.raises(OutputInUse, match="is used by TrainJob job-2 of airflow/dag/manual, which"):
        continue_lease(tmp_path)


@pytest.mark.parametrize("last", ["release", "exit"])
def test_release_removes_the_file(start, tmp_path, last):
    holder = start()
    holder.do("take", "keep")
    assert list_files(tmp_path)
    holder.start(last)
    assert holder.end() == ""
    assert holder.process.returncode == (143 if last == "exit" else 0)
    assert list_files(tmp_path) == []


def test_end_of_a_child_process_does_not_release(start, tmp_path):
    holder = start()
    holder.do("take", "keep", "fork", "_renew")
    assert read_lease(tmp_path)["trainjob"] == "job-1"


def test_release_leaves_the_lease_of_another(tmp_path, take):
    old = take()
    new = take(trainjob="job-2")
    old.release()
    assert new.is_held()
    assert read_lease(tmp_path)["trainjob"] == "job-2"
