"""Development of a project on the laptop cluster: from an edit to the first step, and what travelling code costs."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path

from tests.support.demo_chain import ENVIRONMENTS
from tests.support.markdown import table
from tools.bench.sizes import size
from trainjob import Code, CustomTrainerContainer, RunKey, TrainJob
from trainjob.client import Cluster, Connection
from trainjob.lifecycle import submit, wait
from trainjob_local import LocalCluster

_EDITS = size(10, 1)
_RUNS = size(5, 1)
_PAIRS = size(10, 1)
_MAX_SECONDS, _MAX_OVERHEAD = 5.0, 1.0
_TRAINING = """
import torch
from package.settings import EDIT
weights = torch.zeros(8, requires_grad=True)
optimizer = torch.optim.SGD([weights], lr=0.1)
(weights - 1).square().sum().backward()
optimizer.step()
print("first step of edit", EDIT, flush=True)
"""
_REQUEST = """
step: TrainJob
name: tune
trainer:
  code: project
  module: train
  num_nodes: 1
"""
_NAMES = {
    "`trainjob dev`, from the edit to the first step": "dev",
    "`trainjob run`, from the edit to the first step": "run",
    "a command whose project is in the image": "image",
    "the same command, whose project travels": "code",
}


def measure():
    """Return the seconds of each kind of run."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        laptop = stack.enter_context(LocalCluster(folder / "state", environments=ENVIRONMENTS))
        project = folder / "project"
        (project / "package").mkdir(parents=True)
        (project / "train.py").write_text(_TRAINING)
        (project / "light.py").write_text("print('done')")
        _edit(project, "start")
        subprocess.run(["git", "init", "--quiet", project], check=True)
        (folder / "dev.yaml").write_text(_REQUEST)
        environment = {**os.environ, "KUBECONFIG": str(laptop.kubeconfig)}
        cluster = stack.enter_context(closing(Cluster(Connection(kubeconfig=str(laptop.kubeconfig)))))
        return {
            "dev": _measure_dev(project, folder / "dev.yaml", environment),
            "run": _measure_run(project, folder / "dev.yaml", environment),
            **_measure_pairs(cluster, project),
        }


def _edit(project, text):
    """Replace a module of the project, as an editor does."""
    partial = project.parent / "partial"
    partial.write_text(f"EDIT = {text!r}\n")
    partial.replace(project / "package" / "settings.py")


def _start(command, file, environment):
    arguments = [sys.executable, "-m", "trainjob", command, file]
    return subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, text=True)


def _wait_for_step(process, text):
    expected = f"first step of edit {text}\n"
    if not any(line.endswith(expected) for line in iter(process.stdout.readline, "")):
        raise RuntimeError(f"the command has ended with {process.wait()} before the edit {text}")


def _measure_dev(project, file, environment):
    with _start("dev", file, environment) as process:
        try:
            _wait_for_step(process, "start")
            seconds = []
            for number in range(_EDITS):
                begin = time.monotonic()
                _edit(project, f"dev {number}")
                _wait_for_step(process, f"dev {number}")
                seconds.append(time.monotonic() - begin)
        finally:
            process.terminate()
    return seconds


def _measure_run(project, file, environment):
    seconds = []
    for number in range(_RUNS):
        begin = time.monotonic()
        _edit(project, f"run {number}")
        with _start("run", file, environment) as process:
            _wait_for_step(process, f"run {number}")
            seconds.append(time.monotonic() - begin)
            process.stdout.read()
    return seconds


def _measure_pairs(cluster, project):
    """Return the seconds of a TrainJob, in turn with and without travelling code."""
    start = {"image": "busybox", "command": ("python", "-m", "light"), "num_nodes": 1}
    trainers = {
        "image": CustomTrainerContainer(env={"PYTHONPATH": str(project)}, **start),
        "code": CustomTrainerContainer(code=Code(path=str(project)), **start),
    }
    found: dict[str, list[float]] = {name: [] for name in trainers}
    for number in range(_PAIRS + 1):  # the first of each kind warms up
        for name, trainer in trainers.items():
            begin = time.monotonic()
            reference = submit(cluster, TrainJob(trainer=trainer), RunKey("bench", "dev", name, str(number)))
            wait(cluster, reference).raise_for_failure()
            found[name].append(time.monotonic() - begin)
    return {name: seconds[1:] for name, seconds in found.items()}


_TEXT = """## Development of a project

The training imports torch, makes one step on a CPU and prints a line. Its project is a repository of git. After each of
{edits} edits of one of its modules, a new run starts. `trainjob dev` keeps the pod and a process that has imported
torch; `trainjob run` creates a TrainJob for each of {runs} edits. The time ends when the command has printed the line.

The last two rows are the times from `submit` until `wait` returns for `python -m light`, a module of the project that
prints a line, {pairs} times in turn: with the project in the image, for which `PYTHONPATH` names its folder, and with
the project in a ConfigMap. The difference of their medians is {overhead:.2f} s.

{table}"""


def section(found):
    """Format the measured values as a Markdown section."""
    rows = [
        (name, f"{statistics.median(found[key]):.2f} s", f"{min(found[key]):.2f} s to {max(found[key]):.2f} s")
        for name, key in _NAMES.items()
    ]
    shown = table(("What", "Median", "Range"), rows)
    return _TEXT.format(edits=_EDITS, runs=_RUNS, pairs=_PAIRS, overhead=_get_overhead(found), table=shown)


def _get_overhead(found):
    return statistics.median(found["code"]) - statistics.median(found["image"])


def goals(found):
    """Yield each goal as a tuple: text of the goal, whether it is met, measured value."""
    median = statistics.median(found["dev"])
    goal = f"`trainjob dev` reaches the first step at most {_MAX_SECONDS:.0f} s after an edit (median)"
    yield goal, median <= _MAX_SECONDS, f"{median:.2f} s"
    overhead = _get_overhead(found)
    goal = f"a command whose project travels takes at most {_MAX_OVERHEAD:.0f} s longer than with an image (medians)"
    yield goal, overhead <= _MAX_OVERHEAD, f"{overhead:.2f} s"
