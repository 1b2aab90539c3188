"""The watchdog in the pods of a training: it finds planted hangs, and no others."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.integration.supervision.watched_trainings import python, run_python, run_watched, start_watched
from tests.support.polling import wait_until
from trainjob.frameworks.supervision.processes import list_descendants, read_process
from trainjob.frameworks.supervision.watchdog import WatchdogSettings
from trainjob.heartbeats import FOLDER_VARIABLE, get_stacks_signal
from trainjob.status.watchdog import STEPS_PREFIX, RankEnd, WatchdogReport

HANGS = {
    "sleep": "it is in sleep_for_ever (supervision/stub_training.py:",
    "lock": "it is in wait_for_lock (supervision/stub_training.py:",
    "loader": "it is in DataLoader.__next__ (worker: read_rows (supervision/stub_training.py:",
    "stop": "its process is stopped by a signal (SIGSTOP)",
    "kill": "its process does not exist any more",
}


@pytest.mark.parametrize(("fault", "place"), HANGS.items())
def test_a_rank_that_hangs_is_named_with_its_place(fault, place):
    watched = run_watched(fault, rank=1)
    assert watched.codes == [1]
    assert len(watched.alarms) == 1
    beginning, _, rest = watched.verdict.partition(": ")
    assert beginning.startswith("rank 1 of 2 on node-0 has made no step for ")
    assert beginning.endswith(" since step 4")
    assert rest.startswith(place)
    assert rest.endswith("; 1 rank waits in all_reduce")
    assert watched.outputs[0].splitlines()[-1] == f"watchdog: failed: the training hung: {watched.verdict}"


@pytest.mark.parametrize("fault", ["", "save", "evaluation", "compilation", "native", "merge"])
def test_a_training_that_is_only_slow_raises_no_alarm(fault):
    watched = run_watched(fault, rank=0)
    assert watched.codes == [0]
    assert watched.alarms == []


def test_the_pods_together_name_the_rank():
    watched = run_watched("lock", rank=2, nodes=3, per_node=1)
    assert 1 in watched.codes
    assert watched.verdict.startswith("rank 2 of 3 on node-2 has made no step for ")
    assert watched.verdict.endswith("; 2 ranks wait in all_reduce")
    assert [report.node for report in watched.alarms] == [2]
    assert all("watchdog: 1 rank waits in all_reduce for " in output for output in watched.outputs[:2])


def test_a_first_step_that_never_ends():
    ended = run_python("begin(); wait(10_000)", silence=None, first_step_within=2.0, action="fail")
    assert ended.codes == [1]
    assert ended.verdict.startswith("rank 0 of 1 on node-0 has made no step for ")
    assert " and none before: it is in wait (" in ended.verdict


@pytest.mark.parametrize("limits", [{"silence": 1.0}, {"silence": None}])
def test_the_first_step_has_no_limit_unless_one_is_given(limits):
    assert run_python("begin(); wait(4); report_step(1)", **limits).alarms == []


@pytest.mark.parametrize(("node", "alarms"), [(0, 1), (1, 0)])
def test_only_the_first_node_is_watched_by_its_log(node, alarms):
    """The others write no steps, and wait while the first one works alone, for example in an evaluation."""
    pod = start_watched(python("print('began', flush=True); wait(6)"), WatchdogSettings("report", silence=2.0), node)
    reports = [report for line in pod.communicate()[0].splitlines() if (report := WatchdogReport.from_line(line))]
    assert len(reports) == alarms


@pytest.mark.parametrize("has_py_spy", [True, False])
def test_a_container_that_reports_nothing_has_its_place_from_py_spy(has_py_spy, monkeypatch):
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent if has_py_spy else ''}:/usr/bin:/bin")
    ended = run_python("print('began', flush=True); wait(10_000)", action="fail", silence=2.0)
    assert ended.codes == [1]
    assert (": it is in wait (<string>:4)" in ended.verdict) == has_py_spy
    assert ("watchdog: node-0: <string>:5 in <module>\n" in ended.outputs[0]) == has_py_spy


def test_the_use_of_the_cpus_by_a_hanging_training_is_evidence():
    ended = run_python("report_step(1); wait(10_000)", action="fail", silence=2.0)
    assert re.search(r"\nwatchdog: rank 0: its processes used \d % of one CPU for 0.4 s\n", ended.outputs[0])


@pytest.mark.parametrize(("reports_steps", "alarms"), [(True, 1), (False, 0)])
def test_another_node_has_a_limit_for_its_first_step_if_it_reports_steps(reports_steps, alarms):
    settings = WatchdogSettings("report", first_step_within=2.0)
    pod = start_watched(python(f"begin(reports_steps={reports_steps}); wait(6)"), settings, node=1)
    reports = [report for line in pod.communicate()[0].splitlines() if (report := WatchdogReport.from_line(line))]
    assert len(reports) == alarms


def test_a_training_that_continues_is_reported_again():
    source = "for step in (1, 2, 3):\n    report_step(step)\n    input()"
    pod = start_watched(python(source), WatchdogSettings("report", silence=2.0))
    reports = (report for line in pod.stdout if (report := WatchdogReport.from_line(line)))
    for step in (1, 2):
        assert [(rank.rank, rank.step) for rank in next(reports).ranks] == [(0, step)]
        print(file=pod.stdin, flush=True)
        assert next(reports).ranks == ()  # it makes steps again
    pod.communicate("\n")
    assert pod.returncode == 0


def test_a_hang_that_ends_by_an_error_is_still_reported():
    """All ranks end when one does; the error of a rank that only waited is no step."""
    watched = run_python("report_step(1)\nwait(5)\nfinish()  # as Python does at its end\nwait(2)", silence=2.0)
    assert [(rank.rank, rank.step) for rank in watched.reports[-1].ranks] == [(0, 1)]


def find_ends(output):
    return [end for line in output.splitlines() if (end := RankEnd.from_line(line))]


@pytest.mark.parametrize(
    ("end", "number", "step"),
    [
        ("report_step(7); os.kill(os.getpid(), 9)", 9, 7),
        ("begin(); os.kill(os.getpid(), 11)", 11, None),
        ("report_step(7); os._exit(3)", None, 7),
    ],
)
def test_the_end_of_a_rank_is_written_before_its_launcher_has_noticed_it(end, number, step):
    source = f"""
    import subprocess, sys
    rank = "import os; from trainjob.heartbeats import *; {end}"
    process = subprocess.Popen([sys.executable, "-c", rank], env={{**os.environ, "RANK": "3"}})
    input()
    """
    pod = start_watched(python(textwrap.dedent(source)), WatchdogSettings("report", silence=100.0))
    ends = (end for line in pod.stdout if (end := RankEnd.from_line(line.rstrip("\n"))))
    assert next(ends) == RankEnd(3, number, step)
    assert find_ends(pod.communicate("\n")[0]) == []


@pytest.mark.parametrize(("end", "code"), [("os.kill(os.getpid(), 9)", 137), ("1 / 0", 1), ("pass", 0)])
def test_a_rank_that_ends_by_itself_is_not_written(end, code):
    watched = run_python(f"report_step(7); {end}", silence=100.0)
    assert watched.codes == [code]
    assert [(each.rank, each.step) for each in find_ends(watched.outputs[0])] == ([(0, 7)] if code == 137 else [])


@pytest.mark.parametrize("fault", ["stop", "sleep"])
def test_the_ends_of_ranks_that_the_watchdog_itself_ends_are_not_written(fault):
    watched = run_watched(fault)
    assert watched.codes == [1]
    assert find_ends(watched.outputs[0]) == []


def test_ranks_that_their_launcher_starts_again_are_watched_again():
    source = """
    import subprocess, sys
    for number in (9, 15):
        rank = f"import os; from trainjob.heartbeats import *; report_step({number}); os.kill(os.getpid(), {number})"
        subprocess.run([sys.executable, "-c", rank])
    """
    ends = find_ends(run_python(textwrap.dedent(source), silence=100.0).outputs[0])
    assert [(end.rank, end.step) for end in ends] == [(0, 9), (0, 15)]


PRINT_LOSSES = """
values = [2.5, 2.0] + 8 * [VALUE]
for step, loss in enumerate(values, 1):
    print({"loss": loss, "learning_rate": 0.1, "epoch": step / 10, "step": step, "max_steps": 10}, flush=True)
    report_step(step)
wait(WAIT)
"""


def print_losses(value, seconds, **settings):
    return run_python(PRINT_LOSSES.replace("VALUE", value).replace("WAIT", str(seconds)), silence=100.0, **settings)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("float('nan')", "the loss is not a finite number at step 7; the last finite one is 2 at step 2"),
        ("float('inf')", "the loss is not a finite number at step 7; the last finite one is 2 at step 2"),
        ("800.0", "the loss is 800 at step 7, 400 times the best one (2 at step 2)"),
    ],
)
@pytest.mark.parametrize("action", ["fail", "restart"])
def test_a_training_that_diverges_is_ended(value, text, action):
    ended = print_losses(value, 10_000, loss_factor=100, action=action)
    assert ended.codes == [1]
    assert ended.outputs[0].splitlines()[-1] == f"watchdog: failed: the training diverged: {text}"


def test_a_divergence_is_a_warning_with_report():
    ended = print_losses("float('nan')", 15, action="report")
    assert ended.codes == [0]
    text = "node-0: the loss is not a finite number at step 7; the last finite one is 2 at step 2"
    assert find_warnings(ended.outputs[0]) == [f"watchdog: warning: {text}"]


def test_a_loss_without_meaning_is_no_divergence_while_the_gradients_are_finite():
    source = PRINT_LOSSES.replace('"learning_rate"', '"grad_norm": 1.5, "learning_rate"')
    source = source.replace("VALUE", "float('nan')").replace("WAIT", "15")
    assert run_python(source, silence=100.0, action="fail").codes == [0]


def find_warnings(output):
    return [line for line in output.splitlines() if line.startswith("watchdog: warning: ")]


def test_steps_that_take_longer_than_before_are_a_warning():
    steps = "for step in range(1, 150):\n    wait(0.1 if step < 100 else 0.4)\n    report_step(step)"
    [warning] = find_warnings(run_python(steps, silence=1.0, slow_factor=2.0).outputs[0])
    assert warning.startswith("watchdog: warning: node-0: a step takes 0.")


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """Return a function that creates a program in the place of NVIDIA's, which needs a GPU."""

    def create(source):
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\n{source}\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    return create


STEPS = "for step in range(1, 150):\n    wait(0.1)\n    report_step(step)"


@pytest.mark.parametrize(
    ("source", "percent", "text"),
    [
        ("printf '3\\n5\\n'", 10, "node-0: the GPUs computed for 4 % of the last 0.17 min"),
        ("printf '90\\n30\\n'", 50, ""),
        ("exit 9", 10, "node-0: the use of the GPUs is not known: Command '('nvidia-smi', "),
        ("echo '[N/A]'", 10, "node-0: the use of the GPUs is not known: could not convert string to float: '[N/A]'"),
        ("exec sleep 10000", 10, ""),
    ],
)
def test_gpus_that_compute_little_are_a_warning(nvidia_smi, source, percent, text):
    nvidia_smi(source)
    ended = run_python(STEPS, silence=1.0, min_gpu_percent=percent)
    assert ended.codes == [0]
    found = find_warnings(ended.outputs[0])
    assert len(found) == bool(text)
    assert all(line.startswith(f"watchdog: warning: {text}") for line in found)


def without_steps(output):
    return "".join(line for line in output.splitlines(keepends=True) if not line.startswith(STEPS_PREFIX))


def start_and_read(source, word):
    """Start a training, and return it and its process ID when it has printed a word."""
    pod = start_watched(python(source), WatchdogSettings("fail", silence=2.0))
    assert pod.stdout.readline() == f"{word}\n"
    [training] = [process.pid for process in list_descendants(pod.pid)]
    return pod, training


def test_a_pod_that_was_stopped_as_a_whole_raises_no_alarm():
    pod, training = start_and_read(
        "report_step(1); print('began', flush=True); wait(1); report_step(2); wait(1)", "began"
    )
    for pid in (pod.pid, training):
        os.kill(pid, signal.SIGSTOP)
    time.sleep(5)  # longer than the limit
    for pid in (pod.pid, training):
        os.kill(pid, signal.SIGCONT)
    assert without_steps(pod.communicate()[0]) == ""
    assert pod.returncode == 0


ATTACH = """
import ctypes, sys, time
ptrace = ctypes.CDLL(None, use_errno=True).ptrace
ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
PTRACE_SEIZE = 0x4206
print(ptrace(PTRACE_SEIZE, int(sys.argv[1]), None, None), flush=True)
sys.stdin.readline()
"""


def test_a_debugger_raises_no_alarm():
    source = "print('began', flush=True); input(); report_step(1); wait(6); print('waited', flush=True); wait(1)"
    pod, training = start_and_read(source, "began")
    command = [sys.executable, "-c", ATTACH, str(training)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as debugger:
        assert debugger.stdout.readline() == "0\n"
        print(file=pod.stdin, flush=True)
        assert next(line for line in pod.stdout if without_steps(line)) == "waited\n"
        debugger.communicate("\n")
    assert without_steps(pod.communicate()[0]) == ""
    assert pod.returncode == 0


def test_the_request_for_stacks_ends_no_process(tmp_path):
    command = python("begin(); report_step(1); print('began', flush=True)")
    for _ in range(20):
        with subprocess.Popen(command, env={**os.environ, FOLDER_VARIABLE: str(tmp_path)}, stdout=-1) as process:
            assert process.stdout.readline() == b"began\n"
            while process.poll() is None:  # also while Python ends
                os.kill(process.pid, get_stacks_signal())
                time.sleep(0.001)  # the process would do nothing but handle signals
            assert process.returncode == 0
    assert not (tmp_path / "0").exists()  # a process that ends by itself is not missing


def test_a_training_that_is_being_ended_raises_no_alarm():
    source = "report_step(1)\nsignal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGSTOP))"
    pod, training = start_and_read(f"import signal\n{source}\nprint('began', flush=True)\nwait(10_000)", "began")
    pod.terminate()
    wait_until(lambda: read_process(training).is_stopped)
    time.sleep(5)  # longer than the limit
    os.kill(training, signal.SIGKILL)
    (line,) = without_steps(pod.communicate()[0]).splitlines()
    end = RankEnd.from_line(line)
    assert (end.rank, end.step) == (0, 1)  # the supervisor itself may have noticed the end first
