"""Queue from threads to a coroutine."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import Generic, TypeVar

from trainjob.lifecycle.loop_batches import get_loop_batches

T = TypeVar("T")


class AsyncInbox(Generic[T]):
    """Queue that threads fill and one coroutine reads.

    `asyncio.Queue` with `asyncio.wait_for` is not used. That combination swallows a cancellation that comes together
    with the result (Python 3.10 and 3.11, bpo-37658), and needs a task and 20 further objects for each waiter.
    """

    def __init__(self) -> None:
        """Create an empty inbox that is read on the running event loop."""
        self._batches = get_loop_batches()
        self._items: deque[T] = deque()
        self._arrival: asyncio.Future[None] | None = None  # exists while the reader waits

    def put(self, item: T) -> None:
        """Add an item, from any thread. The item is dropped if the event loop is closed."""
        self._batches.call_soon(partial(self._add, item))

    async def get(self, seconds: float | None) -> T | None:
        """Return the next item, or None if the timeout is over. A cancellation loses no item.

        Args:
            seconds: timeout; None means no timeout.
        """
        if not self._items:
            loop = asyncio.get_running_loop()
            self._arrival = loop.create_future()
            timer = None if seconds is None else loop.call_later(seconds, self._wake_reader)
            try:
                await self._arrival
            finally:
                self._arrival = None
                if timer is not None:
                    timer.cancel()
        return self._items.popleft() if self._items else None

    def _add(self, item: T) -> None:
        self._items.append(item)
        self._wake_reader()

    def _wake_reader(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
