"""The program that starts a tracked training: output, exit codes, signals, and trackers that cannot be used."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.integration.tracking.event_files import read_event_files
from tests.integration.tracking.tracked_programs import (
    python,
    read_line,
    run_tracked,
    start_tracked,
    tensorboard_run,
    wait_for_end,
)

STEPS = "[step(number, 1 / number) for number in range(1, 4)]"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "events"


def losses(folder):
    return {step: round(value, 4) for step, value in read_event_files(folder)["scalars"]["loss"]}


def test_output_and_metrics_of_a_training(folder):
    source = f"print('begin'); {STEPS}; print('to stderr', file=sys.stderr, flush=True); print('end', end='')"
    ended = run_tracked(tensorboard_run(folder), python(source))
    assert (ended.code, ended.errors) == (0, "")
    assert ended.own_lines == [f"tracking: event files in {folder}"]
    lines = [line for line in ended.output.splitlines() if line not in ended.own_lines]
    assert lines == ["begin", *(f"Step {n} | loss:{1 / n} lr:0.1 " for n in (1, 2, 3)), "to stderr", "end"]
    assert losses(folder) == {1: 1.0, 2: 0.5, 3: 0.3333}
    texts = read_event_files(folder)["texts"]
    assert "| epochs | 2 |" in texts["parameters/text_summary"][0]
    assert texts["exit_code/text_summary"] == ["0"]


@pytest.mark.parametrize(("source", "code"), [("sys.exit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 137)])
def test_the_exit_code_is_that_of_the_training(folder, source, code):
    assert run_tracked(tensorboard_run(folder), python(source)).code == code
    assert read_event_files(folder)["texts"]["exit_code/text_summary"] == [str(code)]


def test_a_command_that_does_not_exist(folder, tmp_path):
    missing = str(tmp_path / "missing")
    ended = run_tracked(tensorboard_run(folder), [missing])
    assert (ended.code, ended.output) == (127, "")
    assert ended.errors == f"supervisor: failed: {missing}: No such file or directory\n"


def test_a_command_that_is_not_executable(folder, tmp_path):
    file = tmp_path / "train"
    file.write_text("")
    ended = run_tracked(tensorboard_run(folder), [str(file)])
    assert (ended.code, ended.errors) == (126, f"supervisor: failed: {file}: Permission denied\n")
    # On other nodes than the first, the program is replaced with the training.
    ended = run_tracked(tensorboard_run(folder), [str(file)], env={"PET_NODE_RANK": "1"})
    assert (ended.code, ended.errors) == (126, f"supervisor: failed: {file}: Permission denied\n")


def test_a_missing_command(folder):
    ended = run_tracked(tensorboard_run(folder), [])
    assert ended.code == 2
    assert ended.errors.endswith(": error: the following arguments are required: command\n")


@pytest.mark.parametrize("variable", ["PET_NODE_RANK", "JOB_COMPLETION_INDEX"])
def test_only_the_first_node_is_tracked(folder, variable):
    ended = run_tracked(tensorboard_run(folder), python(STEPS), env={variable: "1"})
    assert (ended.code, ended.own_lines, folder.exists()) == (0, [], False)
    assert len(ended.output.splitlines()) == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_reaches_the_training_once(folder, number):
    source = f"""
import signal
wanted = [{int(number)}]
signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
print("ready", flush=True)
signal.sigwait(wanted)
print("again:", signal.sigtimedwait(wanted, 0.2), flush=True)
sys.exit(5)
"""
    process = start_tracked(tensorboard_run(folder), python(source))
    read_line(process, "ready")
    process.send_signal(number)
    ended = wait_for_end(process)
    assert ended.code == 5
    assert "again: None" in ended.output.splitlines()


def test_a_signal_just_before_a_blocking_call_reaches_the_training(folder):
    """Python runs a signal's handler between bytecodes, and the system call follows the last of them."""
    source = """
import ctypes, functools, os, select, signal, sys, threading
from trainjob.frameworks.supervision.program import main

send_signal = functools.partial(ctypes.PyDLL(None)["raise"], signal.SIGTERM)
waitpid, select_ = os.waitpid, select.select

def send_signal_before(call, *given):
    # map calls both without a bytecode between them.
    return list(map(functools.partial.__call__, (send_signal, functools.partial(call, *given))))[1]

def waitpid_after_a_signal(pid, options):
    return waitpid(pid, options) if options else send_signal_before(waitpid, pid, options)

def select_after_a_signal(*given):
    if threading.current_thread() is not threading.main_thread():
        return select_(*given)
    select.select = select_
    return send_signal_before(select_, *given)

os.waitpid, select.select = waitpid_after_a_signal, select_after_a_signal
sys.exit(main())
"""
    process = start_tracked(tensorboard_run(folder), ["sleep", "600"], program=["-c", source])
    assert wait_for_end(process).code == 128 + signal.SIGTERM


def test_a_training_whose_log_is_closed_sees_it_as_without_the_program(folder):
    """The program closes its end of the pipe, so the training's next write fails."""
    source = """
try:
    while True:
        step(1, 0.5)
except BrokenPipeError:
    import os
    os._exit(7)
"""
    process = start_tracked(tensorboard_run(folder), python(source))
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(60) == 7
    process.stderr.close()


def test_a_process_that_is_left_behind_delays_the_end_by_5_seconds(folder):
    """A process that only holds the output open is not waited for."""
    source = f"""
import subprocess
print(subprocess.Popen([{sys.executable!r}, "-c", "import time; time.sleep(300)"]).pid, flush=True)
"""
    begin = time.monotonic()
    process = start_tracked(tensorboard_run(folder), python(source))
    left_behind = int(process.stdout.readline())
    assert wait_for_end(process).code == 0
    os.kill(left_behind, signal.SIGKILL)
    assert 5 <= time.monotonic() - begin < 30


def test_output_after_the_end_of_the_training_is_copied(folder):
    """A process that the training left behind writes for a second, and then ends."""
    source = f"""
import subprocess
late = "import time; [print('late', n, flush=True) or time.sleep(0.2) for n in range(5)]"
subprocess.Popen([{sys.executable!r}, "-c", late])
"""
    ended = run_tracked(tensorboard_run(folder), python(source))
    assert [line for line in ended.output.splitlines() if line.startswith("late")] == [f"late {n}" for n in range(5)]


def test_a_large_output_is_copied_in_full(folder):
    source = "sys.stdout.write(''.join(f'line {n} ' + 'x' * 90 + chr(10) for n in range(100_000)))"
    ended = run_tracked(tensorboard_run(folder), python(source))
    lines = [line for line in ended.output.splitlines() if not line.startswith("tracking: ")]
    assert len(lines) == 100_000
    assert lines[-1] == "line 99999 " + "x" * 90


def test_a_line_of_the_training_is_not_split(folder):
    """The program's own line waits until the training's line is complete."""
    source = f"""
import os, time
print("half of ", end="", flush=True)
while not os.path.exists({str(folder)!r}):
    time.sleep(0.01)
time.sleep(0.5)
print("a line", flush=True)
"""
    ended = run_tracked(tensorboard_run(folder), python(source))
    assert ended.output.splitlines() == ["half of a line", f"tracking: event files in {folder}"]


UNTIL_SIGTERM = f"""
import signal
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
{STEPS}
signal.pause()
"""


@pytest.mark.slow
def test_an_image_without_the_library_and_without_pip(folder, tmp_path):
    """The training is not affected, the log says why, and no folder is left behind."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    process = start_tracked(
        tensorboard_run(folder),
        python(UNTIL_SIGTERM),
        env={"TMPDIR": str(temporary)},
        tracking_python=Path(sys.executable),
    )
    failure = read_line(process, "tracking: ")
    process.terminate()
    ended = wait_for_end(process)
    cause = (
        "RuntimeError: the image does not contain tensorboardX, and it cannot be installed (pip's variables, such as "
        f"PIP_INDEX_URL, may be set in env): pip ended with 1 for tensorboardX: {sys.executable}: No module named pip"
    )
    assert failure == f"tracking: TensorBoard failed, and is tried again while the training continues: {cause}"
    assert (ended.code, ended.own_lines) == (3, [f"tracking: 3 of 3 steps were not sent to TensorBoard: {cause}"])
    assert not list(temporary.glob("tracking-*"))


STUBBORN = """
import signal, threading
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
threading.Event().wait()
"""


@pytest.mark.slow
def test_a_library_that_hangs_delays_the_end_no_longer_than_the_limit(folder, tmp_path):
    """After SIGTERM the limit is 10 s, and 3 s more for a recorder that does not respond."""
    package = tmp_path / "packages" / "tensorboardX"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(STUBBORN)
    env = {"PYTHONPATH": str(package.parent)}
    process = start_tracked(
        tensorboard_run(folder), python(UNTIL_SIGTERM), env=env, tracking_python=Path(sys.executable)
    )
    read_line(process, "Step 3")
    process.terminate()
    begin = time.monotonic()
    ended = wait_for_end(process)
    assert 13 <= time.monotonic() - begin < 25
    assert (ended.code, ended.own_lines) == (
        3,
        ["tracking: the recorder was killed 10 s after the end of the training; 3 steps may not have been sent"],
    )


def test_a_recorder_that_cannot_be_started(folder, tmp_path):
    missing = tmp_path / "python"
    ended = run_tracked(tensorboard_run(folder), python(f"{STEPS}; sys.exit(3)"), tracking_python=missing)
    assert ended.code == 3
    [line] = ended.own_lines
    assert line == (
        "tracking: the recorder cannot be started, and the training continues without it: "
        f"[Errno 2] No such file or directory: '{missing}'"
    )
