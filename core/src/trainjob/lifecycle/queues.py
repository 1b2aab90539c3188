"""Reads from a queue with a timeout."""

from __future__ import annotations

import queue
from typing import TypeVar

T = TypeVar("T")


def get_with_timeout(inbox: queue.SimpleQueue[T], seconds: float | None) -> T:
    """Return the next item of a queue; wait for it if the queue is empty.

    Args:
        inbox: the queue; only one thread may read from it.
        seconds: timeout; None means no timeout.

    Raises:
        queue.Empty: the timeout is over.
    """
    try:
        # `get` with a timeout waits without end if the queue's lock is free and the timeout is over when `get` has
        # acquired the lock (seen on CPython 3.10.13, 3.11.7, 3.12.1 and 3.13.0). After this call the lock is taken.
        return inbox.get_nowait()
    except queue.Empty:
        if seconds is not None and seconds <= 0:
            raise
        return inbox.get(timeout=seconds)
