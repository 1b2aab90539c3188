"""The containers of steps as processes of this machine, without a cluster."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainjob.job_variables import JOB_VARIABLE, NAME_VARIABLE, POD_VARIABLE
from trainjob.manifest.steps import to_trainjob
from trainjob.spec import CustomTrainerContainer, TrainJob
from trainjob.spec.volumes import WORKSPACE

_MARK = "GPU_EVIDENCE_POD"  # environment variable by which all processes of a pod are found
_POLL_SECONDS = 0.02
_ERROR = re.compile(r"\b(\w+Error|\w+: failed): \S.*")  # of Python, and of a program that runs in pods
Container = tuple[list[str], dict[str, str]]
"""Command and environment of a container."""


class TimeOver(Exception):
    """A process did not end, or did not print a line, in time."""


def read_container(step: Any, workspace: Path, run: str) -> Container:
    """Return command and environment of a step's container.

    `/workspace` is replaced by the folder `workspace`.
    """
    job = to_trainjob(step, run)
    assert isinstance(job, TrainJob) and isinstance(job.trainer, CustomTrainerContainer)
    command, *words = [*(job.trainer.command or ()), *(job.trainer.args or ())]
    assert command == "python"
    pattern = re.compile(rf"^{WORKSPACE}(?=/|$)")
    environment = {name: str(value) for name, value in (job.trainer.env or {}).items()}
    return [sys.executable, *(pattern.sub(str(workspace), word) for word in words)], environment


@dataclass(frozen=True)
class Pod:
    """A running container.

    Attributes:
        process: its first process, which gets SIGTERM as in Kubernetes.
        log: file with its output.
        mark: text in the environment of all its processes.
        begin: when it was started, in seconds of `time.monotonic`.
    """

    process: subprocess.Popen[bytes]
    log: Path
    mark: str
    begin: float

    @classmethod
    def start(cls, container: Container, log: Path, device: str) -> Pod:
        """Start a container."""
        command, variables = container
        hidden = {"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {}
        mark = f"{os.getpid()}-{log.name}"
        # Without this checkout, so that the program has only what its command contains.
        path = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if not _is_of_checkout(each)]
        # Each pod is of another TrainJob, as attempts of a step are: the next one need not wait for a killed one.
        names = dict.fromkeys((NAME_VARIABLE, JOB_VARIABLE, POD_VARIABLE, _MARK), mark)
        environment = {**os.environ, **hidden, **variables, **names, "PYTHONPATH": os.pathsep.join(path)}
        with log.open("wb") as file:
            process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment, cwd=log.parent)
        return cls(process, log, mark, time.monotonic())

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.begin

    def read_lines(self) -> list[str]:
        """Return the lines of the log so far."""
        return self.log.read_text(encoding="utf-8", errors="replace").splitlines()

    def wait_for(self, is_reached: Callable[[], bool], seconds: float) -> None:
        """Wait for a condition.

        Raises:
            TimeOver: the pod ended before, or the time is over.
        """
        while not is_reached():
            if self.process.poll() is not None:
                raise TimeOver(f"it ended with exit code {self.process.returncode}: {self.describe_end()}")
            if self.seconds > seconds:
                raise TimeOver(f"it did not get so far within {seconds:.0f} s: {self.describe_end()}")
            time.sleep(_POLL_SECONDS)

    def wait(self, seconds: float) -> int:
        """Return the exit code; all processes of the pod are then gone.

        Raises:
            TimeOver: the time is over.
        """
        try:
            return self.process.wait(max(1.0, seconds - self.seconds))
        except subprocess.TimeoutExpired:
            raise TimeOver(f"it did not end within {seconds:.0f} s: {self.describe_end()}") from None
        finally:
            self.kill()

    def terminate(self) -> None:
        """Send SIGTERM to the first process."""
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill all processes at once, as the end of a pod does."""
        for number in self._find_processes():
            try:
                os.kill(number, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()

    def describe_end(self) -> str:
        """Return the first error in the log, or its last line."""
        lines = [line for line in self.read_lines() if line.strip()]
        errors = [found[0] for line in lines if (found := _ERROR.search(line))]
        return next(iter([*errors, *lines[-1:]]), "it printed nothing")[:250]

    def _find_processes(self) -> list[int]:
        # torchrun starts each process in a session of its own (torch 2.13), so that the pod has no common group.
        mark, found = f"{_MARK}={self.mark}\0".encode(), []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if mark in path.read_bytes() + b"\0":
                    found.append(int(path.parent.name))
            except OSError:
                continue
        return found


def _is_of_checkout(folder: str) -> bool:
    return any((Path(folder) / name).is_dir() for name in ("tools", "trainjob", "trainjob_local"))


def read_metrics(lines: Sequence[str]) -> list[Mapping[str, float]]:
    """Return the lines with metrics that transformers' Trainer has printed."""
    return [found for line in lines if (found := _parse_metrics(line))]


def _parse_metrics(line: str) -> dict[str, float]:
    text = line[line.find("{") :]
    if not text.startswith("{'") or not text.endswith("}"):
        return {}
    try:
        return {name: float(value) for name, value in ast.literal_eval(text).items()}
    except (ValueError, SyntaxError, TypeError):
        return {}


class MemoryLog:
    """The used memory of the first GPU, which nvidia-smi prints five times in a second."""

    def __init__(self, file: Path) -> None:
        """Start nvidia-smi."""
        self._file = file
        query = ["--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--loop-ms=200"]
        with file.open("wb") as output:
            self._process = subprocess.Popen(["nvidia-smi", *query], stdout=output, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 10
        while not (values := self._read()) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.idle = values[0] if values else 0

    def count(self) -> int:
        """Return the number of values so far."""
        return len(self._read())

    def find_most(self, begin: int) -> int:
        """Return the largest value since a number of values, in MiB."""
        return max(self._read()[begin:], default=0)

    def stop(self) -> None:
        """End nvidia-smi."""
        self._process.terminate()
        self._process.wait()

    def _read(self) -> list[int]:
        return [int(line) for line in self._file.read_text().rpartition("\n")[0].splitlines() if line.strip().isdigit()]
