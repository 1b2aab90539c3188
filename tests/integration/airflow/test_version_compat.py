"""Tests of the requests that triggers send to Airflow, and of what an older Airflow lacks."""

from __future__ import annotations

import asyncio
import threading

import pytest
from asgiref.sync import async_to_sync

from trainjob_airflow.version_compat import get_retry_policy, get_task_state_store, run_request


def test_a_coroutine_of_a_request_runs_in_the_event_loop_of_the_trigger():
    async def run():
        loop = asyncio.get_running_loop()

        async def is_same_loop():
            return asyncio.get_running_loop() is loop

        return await run_request(async_to_sync(is_same_loop))

    assert asyncio.run(run())


def test_a_request_does_not_block_the_event_loop():
    async def run():
        running, go = threading.Event(), threading.Event()

        def request(answer, *, number):
            running.set()
            return answer * number if go.wait(30) else None

        waiting = asyncio.create_task(run_request(request, "a", number=2))
        assert await asyncio.to_thread(running.wait, 30)
        go.set()
        return await waiting

    assert asyncio.run(run()) == "aa"


def test_a_request_of_a_cancelled_trigger_reads_its_response():
    async def run():
        sent, response = asyncio.Event(), asyncio.get_running_loop().create_future()
        read = asyncio.Event()

        async def send():
            sent.set()
            await response
            read.set()

        caller = asyncio.create_task(run_request(async_to_sync(send)))
        await asyncio.wait_for(sent.wait(), 30)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        response.set_result(None)
        await asyncio.wait_for(read.wait(), 30)

    asyncio.run(run())


def test_an_error_of_a_request_is_raised():
    def request():
        raise LookupError("no such variable")

    with pytest.raises(LookupError, match="no such variable"):
        asyncio.run(run_request(request))


def test_a_task_of_an_airflow_without_stores_and_policies_has_none():
    context = {"task": object()}
    assert get_task_state_store(context) is None
    assert get_retry_policy(context) is None
