"""Tests of kills that take longer than Airflow waits for: many at once, a slow API, an API that is away.

The triggers run as in Airflow's triggerer, which cancels them again and again until they have ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
import uuid
from types import SimpleNamespace

import pytest

from tests.support.airflow_versions import needs_on_kill
from tests.support.api_proxy import ApiProxy
from tests.support.polling import wait_until
from trainjob import CustomTrainerContainer, RunKey, TrainJob, submit
from trainjob.lifecycle import Limits
from trainjob.status import derive_verdict
from trainjob_airflow import TrainJobOperator, TrainJobTrigger
from trainjob_airflow.triggers import trainjob as trigger_module
from trainjob_airflow.version_compat import AirflowTaskTimeout

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
    """Run a trigger like TriggerRunner.run_trigger of Airflow 3.3.

    It calls `on_kill` after a user's decision, unless it is cancelled again while it writes a line to the log.
    """
    try:
        async for event in trigger.run():
            return event.payload
    except asyncio.CancelledError:
        await asyncio.sleep(0)
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
    """Run triggers, cancel them again and again, and return when they have ended.

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


@needs_on_kill
def test_a_kill_does_not_need_the_call_of_on_kill(cluster, proxy, monkeypatch):
    """With many kills at once, Airflow's own wait for its log is cancelled before the call."""
    monkeypatch.delattr(TrainJobTrigger, "on_kill")
    references = [submit_script(cluster)]
    kill(references)
    assert find_left(cluster, references) == []


@needs_on_kill
def test_a_triggerer_that_stops_ends_no_trainjob(cluster, proxy):
    """The event loop then cancels each task without a message."""
    reference = submit_script(cluster)

    async def run():
        trigger = TrainJobTrigger(reference=reference.to_dict(), kubernetes_conn_id="slow")
        task = asyncio.create_task(run_like_airflow_at_exit(trigger))
        await wait_until_known(reference, trigger)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(run())
    assert find_left(cluster, [reference]) == [reference.name]
    cluster.delete_trainjob(reference.name, "default", reference.uid)


async def run_like_airflow_at_exit(trigger):
    async for _ in trigger.run():
        pass


def test_a_kill_that_takes_too_long_is_logged_and_goes_on(cluster, proxy, monkeypatch, capsys):
    """The trigger ends with a line in the task's log; the end of the event loop waits for the kill."""
    monkeypatch.setattr(trigger_module, "_KILL_SECONDS", 0.0)
    references = [submit_script(cluster)]
    kill(references, proxy.disconnect, lambda: threading.Timer(0.5, proxy.start_listening).start())
    assert "the kill action takes more than 0 s" in capsys.readouterr().out
    assert find_left(cluster, references) == []


@pytest.fixture
def unnoticed(cluster, proxy, tmp_path):
    """Return a running TrainJob, and a function that lets it finish while the API is away."""
    end = tmp_path / "end"
    reference = submit_script(cluster, f"while [ ! -e {end} ]; do sleep 0.1; done")

    def finish():
        proxy.disconnect()
        end.touch()
        wait_until(lambda: derive_verdict(cluster.get_trainjob(reference.name, "default")).phase.finished)

    return reference, finish


def test_a_kill_retains_a_trainjob_that_finished_unnoticed(cluster, proxy, unnoticed):
    reference, finish = unnoticed
    kill([reference], finish, proxy.start_listening)
    assert cluster.get_trainjob(reference.name, "default")["metadata"]["uid"] == reference.uid


def test_a_limit_returns_the_outcome_of_a_trainjob_that_finished_unnoticed(cluster, proxy, unnoticed):
    """The deferred task's `execution_timeout` is reached while the API is away."""
    reference, finish = unnoticed

    async def run():
        trigger = TrainJobTrigger(reference=reference.to_dict(), deadline=time.time() + 5, kubernetes_conn_id="slow")
        events = asyncio.create_task(run_like_airflow(trigger))
        await wait_until_known(reference, trigger)
        finish()
        await asyncio.sleep(max(0.0, trigger.deadline - time.time()))  # the limit is the event
        proxy.start_listening()
        return await events

    event = asyncio.run(asyncio.wait_for(run(), 120))
    assert event["outcome"]["phase"] == "Complete"
    assert cluster.get_trainjob(reference.name, "default")["metadata"]["uid"] == reference.uid


@pytest.mark.parametrize("has_finished", [True, False])
def test_an_execution_timeout_on_the_worker_ends_only_an_unfinished_trainjob(cluster, proxy, unnoticed, has_finished):
    """Airflow raises the timeout in the main thread, whatever it does."""
    reference, finish = unnoticed
    operator = TrainJobOperator(task_id="t", trainer={"image": "busybox"}, deferrable=False, kubernetes_conn_id="slow")
    operator._guard.reference = reference
    client = operator.hook.get_conn()

    def reach_timeout():
        wait_until(lambda: client.find_known_trainjob(reference.name, "default", reference.uid))
        if has_finished:
            finish()
        os.kill(os.getpid(), signal.SIGALRM)
        if has_finished:
            proxy.start_listening()

    def raise_timeout(*_):
        raise AirflowTaskTimeout("execution_timeout")

    previous = signal.signal(signal.SIGALRM, raise_timeout)
    threading.Thread(target=reach_timeout).start()
    try:
        outcome, _ = operator._wait_on_worker({"ti": SimpleNamespace(try_number=1)}, reference, Limits())
    except AirflowTaskTimeout:
        assert not has_finished
        assert cluster.get_trainjob(reference.name, "default") is None
    else:
        assert has_finished
        assert outcome.succeeded
        assert cluster.get_trainjob(reference.name, "default")["metadata"]["uid"] == reference.uid
    finally:
        signal.signal(signal.SIGALRM, previous)
