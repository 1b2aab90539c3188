"""Waiting for an item of a queue, with a time-out or a cancellation."""

from __future__ import annotations

import asyncio
import queue
import threading

import pytest

from trainjob.lifecycle.async_inbox import AsyncInbox
from trainjob.lifecycle.queues import get_with_timeout


@pytest.mark.parametrize("seconds", [0.0, 1e-6, 5e-6, 2e-5])
def test_a_short_timeout_ends(seconds):
    """`SimpleQueue.get(timeout=...)` hangs in one of some thousand calls; with it, this test hung on every CPython."""

    def take():
        for _ in range(20_000):
            with pytest.raises(queue.Empty):
                get_with_timeout(queue.SimpleQueue(), seconds)

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


def test_an_item_is_returned_with_a_timeout_of_zero():
    inbox = queue.SimpleQueue()
    inbox.put("changed")
    assert get_with_timeout(inbox, 0.0) == "changed"


@pytest.mark.parametrize("turns", range(6))
def test_a_cancelled_task_is_cancelled_or_has_returned_the_item(turns):
    async def cancelled_after(turns: int) -> None:
        inbox = AsyncInbox[str]()
        task = asyncio.ensure_future(inbox.get(60.0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        inbox.put("changed")
        for _ in range(turns):
            await asyncio.sleep(0)
        if task.cancel():
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await inbox.get(60.0) == "changed"
        else:
            assert await task == "changed"

    asyncio.run(cancelled_after(turns))


def test_no_item_is_lost_after_a_timeout():
    async def late() -> None:
        inbox = AsyncInbox[str]()
        assert await inbox.get(0.001) is None
        inbox.put("changed")
        assert await inbox.get(None) == "changed"

    asyncio.run(late())


def test_items_of_threads_arrive_in_order():
    async def read() -> list[int]:
        inbox = AsyncInbox[int]()
        thread = threading.Thread(target=lambda: [*map(inbox.put, range(1000))])
        thread.start()
        return [await inbox.get(60.0) for _ in range(1000)]

    assert asyncio.run(read()) == list(range(1000))
