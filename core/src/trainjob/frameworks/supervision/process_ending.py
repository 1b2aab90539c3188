"""End of a training whose processes may not react to signals."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from trainjob.frameworks.supervision.processes import list_descendants, read_process

__all__ = ["end_processes"]

_PAUSE = 0.1


def end_processes(training: int, grace: float = 10.0) -> None:
    """End a process and all that it has started: by SIGTERM, and later by SIGKILL.

    Args:
        training: process ID of the training's first process, whose parent is this process.
        grace: seconds in which it may end by itself, unless it hangs; with 0, SIGTERM is left out.
    """
    pids = [process.pid for process in list_descendants(training)]
    if grace:
        _send(training, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline and (process := read_process(training)) and not process.has_ended:
        time.sleep(_PAUSE)
    pids += [process.pid for process in list_descendants(training)]
    for pid in (*dict.fromkeys(pids), training):
        _send(pid, signal.SIGKILL)


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
