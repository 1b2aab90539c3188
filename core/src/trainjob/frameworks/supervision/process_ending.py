"""End of a training whose processes may not react to signals."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from trainjob.frameworks.supervision.processes import list_descendants, read_process

__all__ = ["end_processes"]

_GRACE = 10.0  # seconds in which a process may end by itself; one that hangs does not
_PAUSE = 0.1


def end_processes(training: int) -> None:
    """End a process and all that it has started: by SIGTERM, and after 10 s by SIGKILL.

    Args:
        training: process ID of the training's first process, whose parent is this process.
    """
    pids = [process.pid for process in list_descendants(training)]
    _send(training, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE
    while time.monotonic() < deadline and (process := read_process(training)) and not process.has_ended:
        time.sleep(_PAUSE)
    pids += [process.pid for process in list_descendants(training)]
    for pid in (*dict.fromkeys(pids), training):
        _send(pid, signal.SIGKILL)


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
