"""Triggers that start together read their connection once."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.support.polling import wait_until
from trainjob.errors import NoClusterConfigured
from trainjob_airflow.hooks.trainjob import TrainJobHook

pytestmark = pytest.mark.usefixtures("airflow_environment")


@pytest.fixture
def reads(monkeypatch):
    """Return a list that gets the connection ID of each read."""
    found, original = [], TrainJobHook.get_conn

    def read(hook):
        found.append(hook.kubernetes_conn_id)
        time.sleep(0.05)  # as long as a request to Airflow's API server takes
        return original(hook)

    monkeypatch.setattr(TrainJobHook, "get_conn", read)
    return found


def test_hooks_of_the_same_moment_share_a_read_and_later_ones_read_again(reads):
    async def connect():
        clusters = await asyncio.gather(*(TrainJobHook().get_conn_async() for _ in range(50)))
        assert len(set(clusters)) == 1
        assert len(reads) == 1
        assert await TrainJobHook().get_conn_async() is clusters[0]
        assert len(reads) == 2

    asyncio.run(connect())


def test_a_cancelled_hook_does_not_end_the_read_of_the_others(reads):
    async def connect():
        first, second = (asyncio.create_task(TrainJobHook().get_conn_async()) for _ in range(2))
        await asyncio.to_thread(wait_until, lambda: reads)
        first.cancel()
        assert (await second).server
        assert len(reads) == 1

    asyncio.run(connect())


def test_each_hook_gets_the_error_of_a_shared_read(reads):
    async def connect():
        hooks = [TrainJobHook("missing").get_conn_async() for _ in range(3)]
        errors = await asyncio.gather(*hooks, return_exceptions=True)
        assert [type(error) for error in errors] == [NoClusterConfigured] * 3

    asyncio.run(connect())
    assert reads == ["missing"]
