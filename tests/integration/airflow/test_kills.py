"""Tests of kills that take longer than Airflow waits for: many at once, a slow API, an API that is away.

The triggers run as in Airflow's triggerer, which cancels them again and again until they have ended.
"""

from __future__ import annotations

import asyncio
import threading
import uuid

import pytest

from tests.support.api_proxy import ApiProxy
from tests.support.polling import wait_until
from trainjob import CustomTrainerContainer, RunKey, TrainJob, submit
from trainjob.lifecycle import Limits
from trainjob.status import derive_verdict
from trainjob_airflow import TrainJobTrigger
from trainjob_airflow.triggers import trainjob as trigger_module

pytestmark = pytest.mark.usefixtures("airflow")
_CANCELLATIONS = 5


@pytest.fixture
def proxy(laptop, monkeypatch):
    with ApiProxy(laptop) as proxy:
        monkeypatch.setenv("AIRFLOW_CONN_SLOW", proxy.airflow_connection())
        yield proxy


def submit_script(cluster, script="sleep 600"):
    job = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["sh", "-c", script]))
    return submit(cluster, job, RunKey("test", "kills", "t", uuid.uuid4().hex))


async def run_like_airflow(trigger):
    """Run a trigger like Airflow 3.3, which calls `on_kill` after a user's decision (TriggerRunner.run_trigger)."""
    try:
        async for event in trigger.run():
            return event.payload
    except asyncio.CancelledError:
        await asyncio.wait_for(trigger.on_kill(), 30)
        raise


async def wait_until_known(reference, trigger):
    """Wait until the trigger's informer has reported the TrainJob."""
    while True:
        known = trigger._cached_cluster
        if known is not None and known.find_known_trainjob(reference.name, reference.namespace, reference.uid):
            return
        await asyncio.sleep(0.01)


def kill(references, before=lambda: None, after=lambda: None):
    """Run the triggers of TrainJobs, cancel them again and again, and return when they have ended.

    Args:
        references: the TrainJobs.
        before: called before the first cancellation.
        after: called after the last cancellation.
    """

    async def run():
        triggers = [
            TrainJobTrigger(
                reference=reference.to_dict(), limits=Limits().to_dict(), deadline=None, kubernetes_conn_id="slow"
            )
            for reference in references
        ]
        tasks = [asyncio.create_task(run_like_airflow(trigger)) for trigger in triggers]
        await asyncio.gather(*map(wait_until_known, references, triggers))
        before()
        for _ in range(_CANCELLATIONS):
            for task in tasks:
                task.cancel("user-action")
            await asyncio.wait(tasks, timeout=0.05)
        after()
        await asyncio.wait(tasks)
        return [task.cancelled() for task in tasks]

    assert all(asyncio.run(asyncio.wait_for(run(), 120)))


def find_left(cluster, references):
    return [each.name for each in references if cluster.get_trainjob(each.name, each.namespace)]


def test_a_kill_outlives_repeated_cancellations_while_the_api_is_slow(cluster, proxy):
    reference = submit_script(cluster)
    kill([reference], lambda: proxy.withhold_responses(f"/trainjobs/{reference.name}"), proxy.release_responses)
    assert find_left(cluster, [reference]) == []


def test_a_kill_outlives_an_api_that_is_away(cluster, proxy):
    references = [submit_script(cluster)]
    kill(references, proxy.disconnect, proxy.start_listening)
    assert find_left(cluster, references) == []


def test_more_kills_than_threads(cluster, proxy):
    references = [submit_script(cluster) for _ in range(40)]
    kill(references, proxy.disconnect, proxy.start_listening)
    assert find_left(cluster, references) == []


def test_a_kill_that_takes_too_long_is_logged_and_goes_on(cluster, proxy, monkeypatch, capsys):
    """The trigger ends with a line in the task's log; the end of the event loop waits for the kill."""
    monkeypatch.setattr(trigger_module, "_KILL_SECONDS", 0.0)
    references = [submit_script(cluster)]
    kill(references, proxy.disconnect, lambda: threading.Timer(0.5, proxy.start_listening).start())
    assert "the kill action takes more than 0 s" in capsys.readouterr().out
    assert find_left(cluster, references) == []


def test_a_kill_retains_a_trainjob_that_finished_unnoticed(cluster, proxy, tmp_path):
    """The watch has not reported the end when the task is killed."""
    end = tmp_path / "end"
    reference = submit_script(cluster, f"while [ ! -e {end} ]; do sleep 0.1; done")

    def finish_unnoticed():
        proxy.disconnect()
        end.touch()
        wait_until(lambda: derive_verdict(cluster.get_trainjob(reference.name, "default")).phase.finished)

    kill([reference], finish_unnoticed, proxy.start_listening)
    assert cluster.get_trainjob(reference.name, "default")["metadata"]["uid"] == reference.uid
