"""States of a training's processes, as Linux shows them in /proc (proc(5))."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Process", "list_descendants", "read_end_signal", "read_process"]

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_EXIT_CODE = 49  # place of this field after the program's name
_RUNNING, _STOPPED, _TRACED, _BLOCKED, _ENDED = "R", "T", "t", "D", "ZXx"


@dataclass(frozen=True)
class Process:
    """State of one process.

    Attributes:
        pid: process ID.
        parent: process ID of its parent.
        name: name of its program, at most 15 characters.
        letter: Linux's letter for its state.
        cpu_seconds: CPU time that it has used.
        moved_bytes: bytes that it has read and written, without those of sockets.
        waits_in: function of the kernel in which it waits; empty if the kernel does not say.
        has_debugger: whether a debugger is attached.
    """

    pid: int
    parent: int
    name: str
    letter: str
    cpu_seconds: float
    moved_bytes: int
    waits_in: str
    has_debugger: bool

    @property
    def is_running(self) -> bool:
        """Whether its main thread computes, or would if a CPU was free."""
        return self.letter == _RUNNING

    @property
    def is_stopped(self) -> bool:
        """Whether a signal such as SIGSTOP has stopped it."""
        return self.letter == _STOPPED

    @property
    def is_blocked(self) -> bool:
        """Whether it waits in the kernel and no signal reaches it, for example for a disk."""
        return self.letter == _BLOCKED

    @property
    def has_ended(self) -> bool:
        """Whether it has ended and its parent has not noticed yet."""
        return self.letter in _ENDED

    def catches(self, number: int) -> bool:
        """Return whether it has a handler for a signal, which would end it otherwise."""
        with contextlib.suppress(OSError):
            found = re.search(r"^SigCgt:\s*([0-9a-f]+)", (_PROC / str(self.pid) / "status").read_text(), re.MULTILINE)
            return bool(found and int(found[1], 16) >> (number - 1) & 1)
        return False


def read_process(pid: int) -> Process | None:
    """Return the state of a process; None if it does not exist."""
    folder = _PROC / str(pid)
    try:
        name, fields = _read_stat(pid)
        tracer = re.search(r"^TracerPid:\s*(\d+)", (folder / "status").read_text(errors="replace"), re.MULTILINE)
        has_debugger = fields[0] == _TRACED or bool(tracer and int(tracer[1]))
        cpu = (int(fields[11]) + int(fields[12])) / _TICKS
    except (OSError, IndexError, ValueError):
        return None
    waits_in = _read(folder / "wchan").strip("0")
    moved = sum(int(value) for value in re.findall(r"^[rw]char: (\d+)", _read(folder / "io"), re.MULTILINE))
    return Process(pid, int(fields[1]), name, fields[0], cpu, moved, waits_in, has_debugger)


def read_end_signal(pid: int) -> int | None:
    """Return the signal that has ended a process.

    It is None if none has, or if the parent has already noticed the end.
    """
    try:
        return int(_read_stat(pid)[1][_EXIT_CODE]) & 0x7F or None
    except (OSError, IndexError, ValueError):
        return None


def list_descendants(pid: int) -> Iterator[Process]:
    """Yield all processes that a process has started, and those that these have started."""
    found = (read_process(int(folder.name)) for folder in _PROC.iterdir() if folder.name.isdecimal())
    children: dict[int, list[Process]] = {}
    for process in found:
        if process:
            children.setdefault(process.parent, []).append(process)
    waiting = [pid]
    while waiting:
        mine = children.get(waiting.pop(), [])
        yield from mine
        waiting += [process.pid for process in mine]


def _read_stat(pid: int) -> tuple[str, list[str]]:
    """Return the name of a process's program and the fields that follow it.

    Raises:
        OSError: the process does not exist.
    """
    name, _, rest = (_PROC / str(pid) / "stat").read_text(errors="replace").partition(" (")[2].rpartition(") ")
    return name, rest.split()


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
