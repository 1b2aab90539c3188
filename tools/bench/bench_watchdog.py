"""Cost of a watchdog for a healthy training, compared with the same training alone."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from pathlib import Path

from tests.support.markdown import table
from tools.bench.child_process import measure_program
from tools.bench.sizes import size
from trainjob.frameworks.supervision.watchdog import WatchdogSettings
from trainjob.manifest.supervision import supervision_program

_PAIRS = size(5, 1)
_STEPS = size(300, 5)
_MAX_SHARE = 0.01
_NAMES = {
    "wall time of the steps alone": "alone",
    "wall time of the steps with a watchdog": "watched",
    "wall time of the watchdog's start and end": "start",
    "CPU time of the training": "training_cpu",
    "CPU time of the watchdog": "watchdog_cpu",
}
_TRAINING = """
import random, resource, sys, time
from trainjob.heartbeats import report_step
started = time.monotonic()
for step in range(1, int(sys.argv[1]) + 1):
    begin = time.process_time()
    while time.process_time() - begin < 0.1:
        random.random()
    report_step(step)
    if step % 10 == 0:
        print({"loss": 1 / step, "learning_rate": 0.1, "epoch": 0.5, "step": step, "max_steps": 300}, flush=True)
usage = resource.getrusage(resource.RUSAGE_SELF)
print(usage.ru_utime + usage.ru_stime, time.monotonic() - started, file=open(sys.argv[2], "w"))
"""


def measure():
    """Return wall seconds of steps and starts, and CPU seconds of trainings and watchdogs."""
    settings = WatchdogSettings("report", silence=600.0, loss_factor=100.0, slow_factor=10.0)
    watched = [sys.executable, *supervision_program()[1:], "--watchdog", settings.to_json()]
    found: dict[str, list[float]] = {name: [] for name in _NAMES.values()}
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        own = Path(name) / "cpu"
        training = [sys.executable, "-c", _TRAINING, _STEPS, own]
        for _ in range(_PAIRS):
            alone = measure_program(training, os.environ)
            _, steps = map(float, own.read_text().split())
            found["alone"].append(steps)
            cost = measure_program([*watched, *training], os.environ)
            cpu, watched_steps = map(float, own.read_text().split())
            found["watched"].append(watched_steps)
            found["start"].append((cost["wall"] - watched_steps) - (alone["wall"] - steps))
            found["training_cpu"].append(cpu)
            found["watchdog_cpu"].append(cost["cpu"] - cpu)
    return found


_TEXT = """## A watchdog beside a healthy training

The training makes {steps} steps of 0.1 s of CPU time, reports each one, and prints its loss at every tenth step. It ran
{pairs} times alone and {pairs} times with a watchdog, in turn. The CPU time of the watchdog includes the start of its
program. It sends no request to the API server.

{table}"""


def section(found):
    """Format the measured values as a Markdown section."""
    rows = [
        (name, f"{statistics.median(found[key]):.2f} s", f"{min(found[key]):.2f} s to {max(found[key]):.2f} s")
        for name, key in _NAMES.items()
    ]
    return _TEXT.format(steps=_STEPS, pairs=_PAIRS, table=table(("What", "Median", "Range"), rows))


def goals(found):
    """Yield each goal as a tuple: text of the goal, whether it is met, measured value."""
    share = statistics.median(found["watchdog_cpu"]) / statistics.median(found["training_cpu"])
    goal = f"a watchdog takes at most {_MAX_SHARE:.0%} of the CPU time of a training of half a minute"
    yield goal, share <= _MAX_SHARE, f"{share:.2%}"
    difference = abs(statistics.median(found["watched"]) - statistics.median(found["alone"]))
    spread = max(max(found[key]) - min(found[key]) for key in ("alone", "watched"))
    goal = "the medians of the steps' wall times with and without a watchdog differ by less than the runs of one kind"
    yield goal, difference <= spread, f"{difference:.2f} s of {spread:.2f} s"
