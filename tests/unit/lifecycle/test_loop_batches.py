"""Batches of calls between an event loop and threads."""

from __future__ import annotations

import asyncio
import itertools
import threading

import pytest

from tests.support.refused_threads import RefusedStarts
from trainjob import threads
from trainjob.errors import OutOfThreads
from trainjob.lifecycle.loop_batches import LoopBatches, get_loop_batches


def test_calls_of_threads_run_in_order_and_other_work_of_the_loop_runs_between_them():
    async def call() -> tuple[list[int], list[int]]:
        batches, called, between, done = get_loop_batches(), [], [], asyncio.Event()

        def submit() -> None:
            for n in range(500):
                batches.call_soon(lambda n=n: called.append(n))
            batches.call_soon(done.set)

        async def note() -> None:
            while not done.is_set():
                between.append(len(called))
                await asyncio.sleep(0)

        thread = threading.Thread(target=submit)
        thread.start()
        thread.join()
        await asyncio.gather(note(), done.wait())
        return called, between

    called, between = asyncio.run(call())
    assert called == list(range(500))
    assert max(after - before for before, after in itertools.pairwise(between)) <= 50


def test_a_call_after_the_loop_was_closed_is_dropped():
    async def get() -> LoopBatches:
        return get_loop_batches()

    batches = asyncio.run(get())
    batches.call_soon(pytest.fail)


def test_functions_run_on_other_threads_and_raise_where_they_are_awaited():
    async def run() -> None:
        threads = set[int]()

        def fail() -> None:
            raise ValueError("no")

        batches = get_loop_batches()
        calls = [batches.run_on_thread(lambda: threads.add(threading.get_ident())) for _ in range(200)]
        *results, error = await asyncio.gather(*calls, batches.run_on_thread(fail), return_exceptions=True)
        assert results == [None] * 200
        assert isinstance(error, ValueError)
        assert threading.get_ident() not in threads
        assert len(threads) <= 5  # one for each batch
        with pytest.raises(ValueError, match="no"):  # a later batch
            await batches.run_on_thread(fail)

    asyncio.run(run())


def test_a_cancelled_call_does_not_run_and_the_others_do():
    async def run() -> list[int]:
        called: list[int] = []
        batches, held, free = get_loop_batches(), threading.Event(), threading.Event()

        def hold() -> None:
            held.set()
            free.wait(60)

        first = asyncio.create_task(batches.run_on_thread(hold))
        await asyncio.to_thread(held.wait, 60)
        calls = [asyncio.create_task(batches.run_on_thread(lambda n=n: called.append(n))) for n in range(3)]
        await asyncio.sleep(0)
        calls[1].cancel()
        free.set()
        await asyncio.gather(first, *calls, return_exceptions=True)
        return called

    assert asyncio.run(run()) == [0, 2]


def test_an_error_of_one_callback_does_not_stop_the_others():
    async def call() -> tuple[list[int], list[str]]:
        batches, called, errors, done = get_loop_batches(), [], [], asyncio.Event()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(str(context["exception"])))

        def fail() -> None:
            raise ValueError("no")

        for callback in (fail, lambda: called.append(1), fail, lambda: called.append(2), done.set):
            batches.call_soon(callback)
        await asyncio.wait_for(done.wait(), 60)
        return called, errors

    assert asyncio.run(call()) == ([1, 2], ["no", "no"])


def test_after_refused_threads_later_calls_run(monkeypatch):
    monkeypatch.setattr(threads, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(threads, "_MAX_SECONDS", 0.05)

    async def run() -> list[int]:
        called: list[int] = []
        batches = get_loop_batches()
        with RefusedStarts(lambda _: True):
            calls = [batches.run_on_thread(lambda n=n: called.append(n)) for n in range(3)]
            errors = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 60)
        assert [type(error) for error in errors] == [OutOfThreads] * 3
        await asyncio.wait_for(batches.run_on_thread(lambda: called.append(3)), 60)
        return called

    assert asyncio.run(run()) == [3]
