"""Taking what other threads have left for a coroutine."""

from __future__ import annotations

import asyncio
from typing import TypeVar

T = TypeVar("T")


async def taken(inbox: asyncio.Queue[T], seconds: float | None) -> T:
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
