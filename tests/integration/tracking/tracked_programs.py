"""The program that tracks a training, as it runs in a pod, and what it wrote."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.support.mlflow_server import TRACKING_PYTHON
from trainjob.frameworks.tracking.recorder_process import PYTHON_VARIABLE
from trainjob.frameworks.tracking.settings import TrackedRun
from trainjob.manifest.supervision import supervision_program

__all__ = [
    "STEP_PRINTER",
    "Ended",
    "mlflow_run",
    "python",
    "read_line",
    "run_tracked",
    "start_tracked",
    "tensorboard_run",
    "wait_for_end",
    "wandb_run",
]

STEP_PRINTER = """
import sys

def step(number, loss):
    print(f"Step {number} | loss:{loss} lr:0.1 ", flush=True)
"""
"""Start of a training's source: a function that prints a step as TorchTune does."""
_SECONDS = 300


@dataclass(frozen=True)
class Ended:
    """Exit code and output of a program that has ended."""

    code: int
    output: str
    errors: str

    @property
    def own_lines(self) -> list[str]:
        """The lines that the program itself wrote."""
        return [line for line in self.output.splitlines() if line.startswith(("tracking: ", "supervisor: "))]


def tensorboard_run(folder: Path, **fields: Any) -> TrackedRun:
    """Return a tracked run with event files in a folder."""
    run = TrackedRun("tensorboard", "0123456789abcdef", "tune run-1", {"folder": str(folder)}, {"epochs": "2"}, {})
    return replace(run, **fields)


def mlflow_run(url: str, unique: str, **fields: Any) -> TrackedRun:
    """Return a tracked run on an MLflow server, in an experiment of its own."""
    options = {"tracking_uri": url, "experiment": unique}
    parameters, tags = {"epochs": "2", "a//b": "x"}, {"trainjob.attempt": "1", "trainjob.task": "tune"}
    return replace(TrackedRun("mlflow", f"id-of-{unique}", "tune run-1", options, parameters, tags), **fields)


def wandb_run(**options: str) -> TrackedRun:
    """Return a tracked run of Weights & Biases."""
    given = {"project": "tickets", "group": "run-1", **options}
    parameters, tags = {"epochs": "2"}, {"trainjob.attempt": "1", "trainjob.task": "tune"}
    return TrackedRun("wandb", "0123456789abcdef", "tune run-1", given, parameters, tags)


def python(source: str) -> list[str]:
    """Return the command of a training that is this Python source."""
    return [sys.executable, "-c", STEP_PRINTER + source]


def start_tracked(
    run: TrackedRun,
    command: Sequence[str],
    env: Mapping[str, str] | None = None,
    stdout: int = subprocess.PIPE,
    tracking_python: Path = TRACKING_PYTHON,
    program: Sequence[str] = (),
) -> subprocess.Popen[str]:
    """Start the packed program, or other arguments of Python in its place, with a training."""
    return subprocess.Popen(
        [sys.executable, *(program or supervision_program(run.backend)[1:]), "--track", run.to_json(), *command],
        env={**os.environ, PYTHON_VARIABLE: str(tracking_python), **(env or {})},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )


def read_line(process: subprocess.Popen[str], start: str) -> str:
    """Return the program's next line that starts with a text."""
    return next(line.rstrip("\n") for line in process.stdout or () if line.startswith(start))


def wait_for_end(process: subprocess.Popen[str], seconds: float = _SECONDS) -> Ended:
    """Wait for the end of a program, and return its exit code and the rest of its output."""
    output, errors = process.communicate(timeout=seconds)
    return Ended(process.returncode, output or "", errors)


def run_tracked(run: TrackedRun, command: Sequence[str], **options: Any) -> Ended:
    """Run the packed program with a training."""
    return wait_for_end(start_tracked(run, command, **options))
