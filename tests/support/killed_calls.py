"""Calls that are killed with SIGKILL at a file access."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["kill_at_file_access"]


def kill_at_file_access(call: Callable[[], object], point: int) -> int:
    """Run a call in a child process, and kill it at a file access.

    Args:
        call: the call; its standard output is dropped.
        point: number of file accesses before the kill.

    Returns:
        The wait status of the process: SIGKILL, or 0 if the call has ended before.
    """
    if not (pid := os.fork()):
        remaining = point

        def count(event: str, _: tuple[Any, ...]) -> None:
            nonlocal remaining
            remaining -= event.startswith(("open", "os.", "shutil."))
            if remaining < 0 and event != "os.kill":
                os.kill(os.getpid(), signal.SIGKILL)

        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        try:
            sys.addaudithook(count)
            call()
            os._exit(0)
        except BaseException:  # noqa: BLE001 - the parent reports it
            os._exit(1)
    status = os.waitpid(pid, 0)[1]
    assert status in (0, signal.SIGKILL)
    return status
