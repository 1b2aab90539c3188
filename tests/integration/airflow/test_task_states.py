"""Tests of the states that a triggerer requests for the tasks of all its triggers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from urllib.parse import urlencode

import pytest

from trainjob_airflow import task_states
from trainjob_airflow.task_states import TaskStateWatch
from trainjob_airflow.termination import find_state


def task_instance(task="train", run="monday", index=-1, dag="llm"):
    return SimpleNamespace(dag_id=dag, task_id=task, run_id=run, map_index=index)


class Airflow:
    """States of task instances, and a record of the requests for them."""

    def __init__(self, states):
        self.states, self.requests = states, []
        self._requested = asyncio.Condition()

    async def fetch(self, dag_id, task_ids, run_ids):
        async with self._requested:
            self.requests.append((dag_id, set(task_ids), set(run_ids)))
            self._requested.notify_all()
        states = self.states[dag_id]
        if isinstance(states, Exception):
            raise states
        return {run: states[run] for run in run_ids if run in states}

    async def wait_for_requests(self, count):
        async with self._requested:
            await self._requested.wait_for(lambda: len(self.requests) >= count)


@pytest.fixture
def use(monkeypatch):
    """Return a function that lets the watches of the test request the states of `Airflow`."""

    def use(airflow):
        monkeypatch.setattr(task_states, "_CHECK_SECONDS", 0.01)
        monkeypatch.setattr(task_states, "_fetch_states", airflow.fetch)

    return use


async def wait_forever(instance, results):
    async with TaskStateWatch(instance) as watch:
        await asyncio.Event().wait()
    results.append(watch.decided_state)


@pytest.mark.parametrize(
    ("states", "index", "found"),
    [
        ({"monday": {"train": "deferred"}}, -1, "deferred"),
        ({"monday": {"train": None}}, -1, ""),
        ({"monday": {"train_3": "failed", "train": "deferred"}}, 3, "failed"),
        ({"monday": {"train_3": "failed"}}, None, "removed"),
        ({}, -1, "removed"),
    ],
)
def test_the_state_of_a_task_instance_is_found(states, index, found):
    assert find_state(states, task_instance(index=index)) == found


def test_each_dag_has_one_request_for_all_its_tasks(use):
    states = {"a": {"1": {"x": "deferred", "y_0": "deferred", "y_1": "deferred"}}, "b": {"2": {"x": "deferred"}}}
    airflow = Airflow(states)
    use(airflow)

    async def wait_for_two_rounds():
        watched = [("a", "x", "1", -1), ("a", "y", "1", 0), ("a", "y", "1", 1), ("b", "x", "2", -1)]
        waits = [
            asyncio.create_task(wait_forever(task_instance(task, run, index, dag), []))
            for dag, task, run, index in watched
        ]
        await airflow.wait_for_requests(4)
        for wait in waits:
            wait.cancel()
        await asyncio.wait(waits)
        assert all(wait.cancelled() for wait in waits)

    asyncio.run(asyncio.wait_for(wait_for_two_rounds(), 30))
    assert airflow.requests[:4] == [("a", {"x", "y"}, {"1"}), ("b", {"x"}, {"2"})] * 2


@pytest.mark.parametrize("state", [None, "failed", "success", "skipped", "upstream_failed"])
def test_a_decision_of_a_user_ends_the_code_inside(use, state):
    airflow, results = Airflow({"llm": {"monday": {"train": "deferred"}}}), []
    use(airflow)

    async def decide():
        wait = asyncio.create_task(wait_forever(task_instance(), results))
        await airflow.wait_for_requests(1)
        airflow.states["llm"]["monday"]["train"] = state
        await wait
        assert not wait.cancelled()
        assert wait.cancelling() == 0

    asyncio.run(asyncio.wait_for(decide(), 30))
    assert results == [state or ""]


@pytest.mark.parametrize("state", ["scheduled", "queued", "running", "up_for_retry", "deferred"])
def test_other_states_end_nothing(use, state):
    airflow, results = Airflow({"llm": {"monday": {"train": state}}}), []
    use(airflow)

    async def wait():
        waiting = asyncio.create_task(wait_forever(task_instance(), results))
        await airflow.wait_for_requests(3)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait({waiting})

    asyncio.run(asyncio.wait_for(wait(), 30))
    assert results == []


def test_an_error_of_one_dag_does_not_end_the_checks(use):
    airflow = Airflow({"a": RuntimeError("no response"), "b": {"1": {"x": "deferred"}}})
    use(airflow)
    results = []

    async def wait():
        failing = asyncio.create_task(wait_forever(task_instance("x", "1", dag="a"), []))
        other = asyncio.create_task(wait_forever(task_instance("x", "1", dag="b"), results))
        await airflow.wait_for_requests(4)
        airflow.states["b"]["1"]["x"] = "failed"
        await other
        failing.cancel()
        await asyncio.wait({failing})

    asyncio.run(asyncio.wait_for(wait(), 30))
    assert results == ["failed"]


def test_a_name_that_two_task_instances_share_is_requested_again(use):
    """The name `a_1` in the response may be that of the task `a_1` or of the mapped task instance 1 of `a`."""

    class SharedName(Airflow):
        async def fetch(self, dag_id, task_ids, run_ids):
            await super().fetch(dag_id, task_ids, run_ids)
            return {"monday": {"a_1": "deferred" if set(task_ids) == {"a"} else "failed"}}

    airflow, results = SharedName({"llm": {}}), []
    use(airflow)

    async def wait():
        mapped = asyncio.create_task(wait_forever(task_instance("a", index=1), results))
        plain = asyncio.create_task(wait_forever(task_instance("a_1"), results))
        await plain
        await airflow.wait_for_requests(6)
        assert not mapped.done()
        mapped.cancel()
        await asyncio.wait({mapped})

    asyncio.run(asyncio.wait_for(wait(), 30))
    assert results == ["failed"]


def test_a_cancellation_by_airflow_is_raised_even_after_a_decision():
    async def cancel_twice():
        watch, inside = TaskStateWatch(task_instance()), asyncio.Event()

        async def wait():
            async with watch:
                inside.set()
                await asyncio.Event().wait()

        waiting = asyncio.create_task(wait())
        await inside.wait()
        watch.cancel("failed")
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        assert watch.decided_state == "failed"

    asyncio.run(asyncio.wait_for(cancel_twice(), 30))


def test_a_request_is_no_longer_than_a_url_may_be(use):
    """1,500 runs of one DAG, whose IDs have more than 64 KiB, are requested in slices, and all are found."""
    runs = [f"scheduled__2026-11-26T00:00:00+00:00-{number:04}" for number in range(1500)]
    airflow, results = Airflow({"llm": {run: {"train": "failed"} for run in runs}}), []
    use(airflow)

    async def wait():
        await asyncio.gather(*(wait_forever(task_instance(run=run), results) for run in runs))

    asyncio.run(asyncio.wait_for(wait(), 60))
    assert results == ["failed"] * len(runs)
    for dag_id, task_ids, run_ids in airflow.requests:
        query = {"dag_id": dag_id, "task_ids": sorted(task_ids), "run_ids": sorted(run_ids)}
        assert len(urlencode(query, doseq=True)) < 8192
    assert len(airflow.requests) < 40


def test_a_failed_read_is_one_warning(use, caplog):
    airflow = Airflow({"llm": RuntimeError("URL component 'query' too long")})
    use(airflow)

    async def wait():
        waiting = asyncio.create_task(wait_forever(task_instance(), []))
        await airflow.wait_for_requests(3)
        airflow.states["llm"] = {"monday": {"train": "failed"}}
        await waiting

    with caplog.at_level("WARNING"):
        asyncio.run(asyncio.wait_for(wait(), 30))
    [record] = caplog.records
    assert "the requests are repeated" in record.getMessage()
    assert "too long" in record.exc_text
