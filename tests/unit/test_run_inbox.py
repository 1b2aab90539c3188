"""Taking from an inbox: a cancellation counts, whatever comes with it."""

from __future__ import annotations

import asyncio

import pytest

from trainjob.run.inbox import taken


@pytest.mark.parametrize("turns", range(6))
def test_at_any_turn_of_the_loop_it_is_cancelled_or_has_its_change(turns):
    async def cancelled_after(turns: int) -> None:
        inbox: asyncio.Queue[str] = asyncio.Queue()
        task = asyncio.ensure_future(taken(inbox, 60.0))
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
            await taken(inbox, 0.001)
        inbox.put_nowait("changed")
        assert await taken(inbox, None) == "changed"

    asyncio.run(late())
