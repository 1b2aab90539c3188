"""Stacks of Python processes, which they write after a signal (module `faulthandler`), or `py-spy` reads."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sysconfig
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from trainjob.frameworks.supervision.processes import Process
from trainjob.heartbeats import get_stacks_signal

__all__ = ["Frame", "Stacks", "request_stacks"]

_THREAD = re.compile(r"^(?:Current thread|Thread) 0x([0-9a-f]+)[^\n]*\(most recent call first\):\n", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.*)", line (\d+|\?\?\?) in (.*)$', re.MULTILINE)
_MAX_CHARACTERS = 1 << 20
_LONGEST_DUMP, _PAUSE = 5.0, 0.02  # seconds; a dump takes a millisecond if the machine is not busy
_STANDARD_LIBRARY = re.compile(r"(?:^<frozen |/lib/python3\.\d+/(?!(?:site|dist)-packages/))")
# Functions that say where a training waits better than the lines that they call. The last one is torch's function for
# all backward passes, in which the ranks of DistributedDataParallel and FSDP wait for the gradients of the others.
_COLLECTIVES = "torch/distributed/distributed_c10d.py"
_BACKWARD = ("torch/autograd/graph.py", "_engine_run_backward")
_DATA_LOADER = "torch/utils/data/dataloader.py"


@dataclass(frozen=True)
class Frame:
    """One call in a stack."""

    file: str
    line: str
    function: str

    def __str__(self) -> str:
        return f"{self.function} ({_shorten(self.file)}:{self.line})"


@dataclass(frozen=True)
class Stacks:
    """Stacks of the threads of one process.

    Attributes:
        main: stack of the main thread, the most recent call first.
    """

    main: Sequence[Frame] = ()

    @property
    def collective(self) -> str:
        """Name of the collective operation that the main thread is in; empty if it is in none."""
        for frame in reversed(self.main):  # the outermost one, which the training has called
            if frame.file.endswith(_COLLECTIVES) and not frame.function.startswith("_"):
                return frame.function
        innermost = self.main[0] if self.main else None
        is_backward = innermost and innermost.file.endswith(_BACKWARD[0]) and innermost.function == _BACKWARD[1]
        return "backward" if is_backward else ""

    @property
    def place(self) -> str:
        """Function and line of the most recent call outside of the standard library."""
        if not self.main:
            return ""
        own = next((frame for frame in self.main if not _STANDARD_LIBRARY.search(frame.file)), self.main[0])
        return "DataLoader.__next__" if own.file.endswith(_DATA_LOADER) else str(own)


def request_stacks(process: Process, path: Path, main_thread: int | None = None) -> Stacks:
    """Return the stacks that a process writes to a file at a signal.

    Those of a process that does not handle the signal are read by `py-spy` if it is installed and may read them.
    Otherwise, and for a process that is stopped, they are empty.

    Args:
        process: the process.
        path: the file, to which other processes write at other times.
        main_thread: identifier of its main thread; None means the last thread that it writes.
    """
    number = get_stacks_signal()
    cannot = process.is_stopped or process.is_blocked or process.has_ended or process.has_debugger
    if cannot:
        return Stacks()
    if not process.catches(number):
        return _read_by_py_spy(process.pid)
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            # Nothing marks the end of a dump, so a second one is requested, which begins after the end of the first.
            for _ in range(2):
                _send_signal(process.pid, number)
            text = _read_first_dump(file)
    except OSError:
        return Stacks()
    return parse_stacks(text, main_thread)


def _read_by_py_spy(pid: int) -> Stacks:
    command = ("py-spy", "dump", "--json", "--pid", str(pid))
    try:
        done = subprocess.run(command, capture_output=True, timeout=_LONGEST_DUMP, check=True)
        [main] = [thread["frames"] for thread in json.loads(done.stdout) if thread["os_thread_id"] == pid]
        return Stacks(tuple(Frame(each["filename"], str(each["line"]), each["name"]) for each in main))
    except (OSError, ValueError, LookupError, TypeError, subprocess.SubprocessError):
        return Stacks()


def parse_stacks(text: str, main_thread: int | None = None) -> Stacks:
    """Return the stacks in the output of `faulthandler`."""
    _, *parts = _THREAD.split(text)
    threads = {int(ident, 16): frames for ident, frames in zip(parts[::2], parts[1::2], strict=True)}
    if not threads:
        return Stacks()
    frames = threads.get(main_thread or 0, list(threads.values())[-1])
    return Stacks(tuple(Frame(*found) for found in _FRAME.findall(frames)))


def _send_signal(pid: int, number: int) -> None:
    """Send a signal to the main thread of a process.

    `os.kill` lets the kernel choose a thread: while the main thread handles one signal, another one handles the next,
    and both write at once. It is for a Python without `ctypes`, and for glibc before 2.30.

    Raises:
        OSError: the process has ended.
    """
    try:
        from ctypes import CDLL  # an optional part of Python

        tgkill = CDLL(None).tgkill
    except (ImportError, OSError, AttributeError):
        os.kill(pid, number)
        return
    if tgkill(pid, pid, number):
        raise ProcessLookupError(pid)


def _read_first_dump(file: IO[bytes]) -> str:
    """Return the first of two dumps, whose threads have the same order.

    The text is empty if they are not written in time.
    """
    deadline, text = time.monotonic() + _LONGEST_DUMP, ""
    while time.monotonic() < deadline and len(text) < _MAX_CHARACTERS:
        time.sleep(_PAUSE)
        text += file.read().decode(errors="replace")
        threads = list(_THREAD.finditer(text))
        if second := [thread for thread in threads[1:] if thread[1] == threads[0][1]]:
            return text[: second[0].start()]
    return ""


def _shorten(path: str) -> str:
    """Return a path below the folder of its packages, or its last two parts."""
    packages = sysconfig.get_path("purelib")
    if path.startswith(f"{packages}/"):
        return path[len(packages) + 1 :]
    _, found, rest = path.rpartition("-packages/")
    return rest if found else "/".join(path.split("/")[-2:])
