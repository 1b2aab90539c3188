"""Taking what other threads have left, for a thread and for a coroutine."""

from __future__ import annotations

import asyncio
import queue
from typing import TypeVar

T = TypeVar("T")


def get_with_timeout(inbox: queue.SimpleQueue[T], seconds: float | None) -> T:
    """Return the next item of a queue, waiting for it if there is none.

    Args:
        inbox: the queue; one thread only takes from it.
        seconds: how long to wait; None means for ever.

    Raises:
        queue.Empty: the time is over.
    """
    try:
        # `get` with a timeout waits for ever if the queue's lock is free and the time is over when it has taken it
        # (seen on CPython 3.10.13, 3.11.7, 3.12.1 and 3.13.0). After this call the lock is taken.
        return inbox.get_nowait()
    except queue.Empty:
        if seconds is not None and seconds <= 0:
            raise
        return inbox.get(timeout=seconds)


async def get_async(inbox: asyncio.Queue[T], seconds: float | None) -> T:
    """The next of an inbox; nothing is lost when the time is over first.

    Not `asyncio.wait_for`, which swallows a cancellation that comes together with the result (Python 3.10 and 3.11,
    bpo-37658): who is told to end would wait on for a job that nobody wants any more.

    Args:
        inbox: where from.
        seconds: how long to wait; None means for ever.

    Raises:
        TimeoutError: the time is over.
    """
    getting = asyncio.ensure_future(inbox.get())
    try:
        await asyncio.wait({getting}, timeout=seconds)
        if getting.done():
            return getting.result()
        raise asyncio.TimeoutError
    finally:
        getting.cancel()  # it has taken nothing yet, or is done
