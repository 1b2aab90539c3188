"""Taking from an inbox: a cancellation counts, whatever comes with it."""

from __future__ import annotations

import asyncio
import queue
import threading

import pytest

from trainjob.lifecycle.queues import get_async, get_with_timeout


@pytest.mark.parametrize("seconds", [0.0, 1e-6, 5e-6, 2e-5])
def test_a_short_timeout_ends(seconds):
    """`SimpleQueue.get(timeout=...)` hangs in one of some thousand calls: this case hung with it on each CPython."""

    def take():
        for _ in range(20_000):
            with pytest.raises(queue.Empty):
                get_with_timeout(queue.SimpleQueue(), seconds)

    taking = threading.Thread(target=take, daemon=True)
    taking.start()
    taking.join(60)
    assert not taking.is_alive()


def test_an_item_is_taken_also_without_time():
    inbox = queue.SimpleQueue()
    inbox.put("changed")
    assert get_with_timeout(inbox, 0.0) == "changed"


@pytest.mark.parametrize("turns", range(6))
def test_at_any_turn_of_the_loop_it_is_cancelled_or_has_its_change(turns):
    async def cancelled_after(turns: int) -> None:
        inbox: asyncio.Queue[str] = asyncio.Queue()
        task = asyncio.ensure_future(get_async(inbox, 60.0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        inbox.put_nowait("changed")
        for _ in range(turns):
            await asyncio.sleep(0)
        if task.cancel():
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            assert await task == "changed"

    asyncio.run(cancelled_after(turns))


def test_nothing_is_lost_when_the_time_is_over():
    async def late() -> None:
        inbox: asyncio.Queue[str] = asyncio.Queue()
        with pytest.raises(asyncio.TimeoutError):
            await get_async(inbox, 0.001)
        inbox.put_nowait("changed")
        assert await get_async(inbox, None) == "changed"

    asyncio.run(late())
