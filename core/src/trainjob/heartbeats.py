"""Signs of life of a training's processes, which the watchdog of their pod reads.

A function reports its steps, and the watchdog then knows the last one of each rank:

    def train():
        from trainjob.heartbeats import report_step
        for step in range(1000):
            ...
            report_step(step + 1)

Trainings with transformers' Trainer report theirs by the callback of this project.
Without a watchdog, a report does nothing. This module needs the standard library only.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "BEGUN_NAME",
    "FOLDER_VARIABLE",
    "RANK_VARIABLES",
    "Heartbeat",
    "begin",
    "finish",
    "report_life",
    "report_step",
]

FOLDER_VARIABLE = "TRAINJOB_HEARTBEATS"
"""Environment variable: the folder with a file for each rank of the pod; without it nothing is written."""
BEGUN_NAME = "begun"
"""Named pipe in this folder; a process writes to it when it has begun to report itself."""
RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "JOB_COMPLETION_INDEX")
"""Variables with a process's rank, set by torchrun, mpirun and Kubernetes. JAX and XGBoost use the last one."""
_SIZE_VARIABLES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PET_NNODES")
_RECORD_BYTES = 160  # of a record, which is overwritten in place


@dataclass(frozen=True)
class Heartbeat:
    """Last sign of life of one process of a training.

    Attributes:
        rank: rank of the process among all processes of the training; None if the processes do not report themselves.
        world_size: number of these processes.
        pid: process ID.
        main_thread: identifier of its main thread, as in the stacks of `faulthandler`; 0 if it writes no stacks.
        step: last step that it has completed; None before the first one.
        time: time of the sign, in seconds of the monotonic clock that all processes of a machine share.
        reports_steps: whether it will report its first step, if it has made none.
    """

    rank: int | None
    world_size: int
    pid: int
    main_thread: int
    step: int | None
    time: float
    reports_steps: bool = False

    @property
    def stacks_name(self) -> str:
        """Name of the file to which the process writes its stacks at a signal."""
        return f"{self.rank}.stacks"

    def to_record(self) -> bytes:
        """Return the content of the process's file."""
        position = (self.step, f"{self.time:.3f}", int(self.reports_steps))
        values = (self.rank, self.world_size, self.pid, self.main_thread, *position)
        return " ".join(map(str, values)).ljust(_RECORD_BYTES - 1).encode() + b"\n"

    @classmethod
    def from_record(cls, record: bytes) -> Heartbeat:
        """Return the heartbeat of a file's content.

        Raises:
            ValueError: the content is not complete.
        """
        *numbers, step, moment, reports_steps = record.decode().split()
        rank, size, pid, thread = map(int, numbers)
        return cls(rank, size, pid, thread, None if step == "None" else int(step), float(moment), reports_steps == "1")


def read_heartbeats(folder: Path) -> Iterator[Heartbeat]:
    """Yield the heartbeats of all processes that write to a folder, in rank order."""
    files = [file for file in folder.iterdir() if file.name.isdecimal()]
    for file in sorted(files, key=lambda file: int(file.name)):
        with contextlib.suppress(OSError, ValueError):  # it ends, or begins to write
            yield Heartbeat.from_record(file.read_bytes())


def get_stacks_signal() -> int:
    """Return the number of the signal after which a process writes the stacks of its threads.

    It is one of the real-time signals, which trainings hardly use.
    """
    return signal.SIGRTMIN + 11


def begin(*, reports_steps: bool = False) -> None:
    """Start to report this process, which has made no step yet.

    It also writes its stacks at a signal from now on, and so do processes that it forks later, such as the workers of a
    data loader. No error ends the training.

    Args:
        reports_steps: whether this process will report its steps; otherwise only the log has them.
    """
    global _writer  # noqa: PLW0603 - one process has one
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder and _writer is None:
        with contextlib.suppress(OSError, ValueError):
            _writer = _Writer(Path(folder))
            atexit.register(finish)  # a process that ends by itself is not missing
    if _writer and reports_steps and not _writer.reports_steps:
        _writer.reports_steps = True
        report_life()


def report_step(step: int) -> None:
    """Report that this process has completed a step, for example of its optimizer.

    It costs some microseconds.

    Args:
        step: number of steps that the training has completed.
    """
    begin(reports_steps=True)
    if _writer:
        _writer.write(step)


def report_life() -> None:
    """Report that this process is alive, for example during an evaluation."""
    if _writer:
        _writer.write(_writer.step)


def finish() -> None:
    """End the reports of this process: what follows its training has no steps."""
    global _writer  # noqa: PLW0603
    if _writer:
        _writer.close()
        _writer = None


class _Writer:
    """Writer of this process's heartbeat.

    Attributes:
        step: last step that was reported.
        reports_steps: whether steps will follow.
    """

    def __init__(self, folder: Path) -> None:
        self.step: int | None = None
        self.reports_steps = False
        self._rank, self._size = _read_number(RANK_VARIABLES, 0), _read_number(_SIZE_VARIABLES, 1)
        self._path, self._pid = folder / str(self._rank), os.getpid()
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._thread = 0
        # Appended, because forked processes write to it, too.
        self._stacks = (folder / f"{self._rank}.stacks").open("ab", buffering=0)
        if threading.current_thread() is threading.main_thread():
            # Python removes the handler when it ends, and a process that ignores the signal then survives it.
            signal.signal(get_stacks_signal(), signal.SIG_IGN)
            faulthandler.register(get_stacks_signal(), file=self._stacks, all_threads=True)
            self._thread = threading.get_ident()
        self.write(None)
        with contextlib.suppress(OSError):  # nobody waits for it
            begun = os.open(folder / BEGUN_NAME, os.O_WRONLY | os.O_NONBLOCK)
            os.write(begun, b"\n")
            os.close(begun)

    def write(self, step: int | None) -> None:
        if os.getpid() != self._pid:
            return  # a forked process is not this rank
        self.step = step
        position = (step, time.monotonic(), self.reports_steps)
        heartbeat = Heartbeat(self._rank, self._size, self._pid, self._thread, *position)
        with contextlib.suppress(OSError):
            os.pwrite(self._file, heartbeat.to_record(), 0)

    def close(self) -> None:
        if os.getpid() == self._pid:
            with contextlib.suppress(OSError):
                self._path.unlink()
            os.close(self._file)


_writer: _Writer | None = None


def _read_number(names: tuple[str, ...], default: int) -> int:
    found = (os.environ[name] for name in names if os.environ.get(name, "").isdecimal())
    return int(next(found, default))
