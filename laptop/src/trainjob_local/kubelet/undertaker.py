"""Ends the containers of a kubelet that was killed. Runs as its own program, standard library only.

A kubelet that gets SIGKILL cannot end its pods. `prctl(PR_SET_PDEATHSIG)` does not help: it watches the *thread* that
started the process, knows no grandchildren and exists on Linux only. So a kubelet starts this small program beside it,
tells it through a pipe which process groups live, and the end of the pipe, however it comes, is the order to end them.
On Linux it also ends every process that carries the kubelet's mark in its environment: such as have left their
group, and one whose kubelet died before it could tell.

    undertaker.py MARK [--remove FOLDER]        reads "+PGID" and "-PGID" lines
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

MARK = "TRAINJOB_LOCAL_NODE"
"""Name of the environment variable that every container process carries."""

CONTAINER_MARK = "TRAINJOB_LOCAL_CONTAINER"
"""The same for the processes of one run of a container."""

_PROC = Path("/proc")


def living(lines: list[str]) -> set[int]:
    """Works out which process groups live after these orders."""
    groups: set[int] = set()
    for line in lines:
        change, number = line[:1], line[1:].strip()
        if number.isdigit():
            (groups.add if change == "+" else groups.discard)(int(number))
    return groups


def marked(mark: str, name: str = MARK) -> set[int]:
    """Finds the processes that carry the mark (Linux; elsewhere none)."""
    wanted = f"{name}={mark}".encode()
    found = set()
    for entry in _PROC.glob("[0-9]*") if _PROC.is_dir() else ():
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.add(int(entry.name))
        except OSError:  # it ended meanwhile, or belongs to another user
            continue
    return found


def end(groups: set[int], mark: str, *, name: str = MARK, patience: float = 2.0) -> None:
    """Kills the groups, then whatever carries the mark until nothing does, at most for `patience` seconds."""
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    clean, deadline = 0, time.monotonic() + patience
    while clean < 2 and time.monotonic() < deadline:  # twice: one may just have been between fork and exec
        left = marked(mark, name) - {os.getpid()}
        clean = 0 if left else clean + 1
        for process in left:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.02)


def main(arguments: list[str]) -> None:
    """Reads orders until the kubelet is gone, then ends what is left of it."""
    mark, folder = arguments[0], arguments[2] if len(arguments) > 2 else ""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # it ends with the kubelet, not before
        signal.signal(number, signal.SIG_IGN)
    end(living(sys.stdin.readlines()), mark)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
