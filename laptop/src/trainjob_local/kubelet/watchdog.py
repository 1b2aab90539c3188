"""Watchdog program that ends the containers of a killed kubelet; standard library only.

A kubelet that gets SIGKILL cannot end its pods. `prctl(PR_SET_PDEATHSIG)` does not help: it watches the *thread* that
started the process, does not cover grandchildren and exists on Linux only. So a kubelet starts this small program as a
separate process, and reports the running process groups through a pipe. When the pipe closes, for whatever reason, the
program kills these groups. On Linux it also kills every process that carries the kubelet's mark in its environment:
processes that left their group, and a process whose kubelet died before it could report it.

    watchdog.py MARK [--remove FOLDER]        reads "+PGID" and "-PGID" lines
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

NODE_MARK_VARIABLE = "TRAINJOB_LOCAL_NODE"
"""Name of the environment variable that every container process carries."""

CONTAINER_MARK_VARIABLE = "TRAINJOB_LOCAL_CONTAINER"
"""Name of the environment variable that marks the processes of one run of a container."""

_PROC = Path("/proc")


def running_groups(lines: list[str]) -> set[int]:
    """Return the process groups that still run according to the `+` and `-` lines."""
    groups: set[int] = set()
    for line in lines:
        change, number = line[:1], line[1:].strip()
        if number.isdigit():
            (groups.add if change == "+" else groups.discard)(int(number))
    return groups


def find_marked_processes(mark: str, name: str = NODE_MARK_VARIABLE) -> set[int]:
    """Return the IDs of the processes that carry the mark; empty on systems other than Linux."""
    wanted = f"{name}={mark}".encode()
    found = set()
    for entry in _PROC.glob("[0-9]*") if _PROC.is_dir() else ():
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.add(int(entry.name))
        except OSError:  # the process has ended, or belongs to another user
            continue
    return found


def kill_processes(groups: set[int], mark: str, *, name: str = NODE_MARK_VARIABLE, timeout: float = 2.0) -> None:
    """Kill the process groups, then the processes that carry the mark until none is left.

    Args:
        groups: IDs of the process groups.
        mark: value of the environment variable.
        name: name of the environment variable.
        timeout: maximum duration in seconds.
    """
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    clean, deadline = 0, time.monotonic() + timeout
    while clean < 2 and time.monotonic() < deadline:  # twice: a process may have been between fork and exec
        left = find_marked_processes(mark, name) - {os.getpid()}
        clean = 0 if left else clean + 1
        for process in left:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.02)


def main(arguments: list[str]) -> None:
    """Read lines until the kubelet has ended, then kill its remaining processes."""
    mark, folder = arguments[0], arguments[2] if len(arguments) > 2 else ""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # it must not end before the kubelet
        signal.signal(number, signal.SIG_IGN)
    kill_processes(running_groups(sys.stdin.readlines()), mark)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
