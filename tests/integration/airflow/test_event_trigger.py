"""Tests that each complete TrainJob has one asset event, also after restarts of the triggerer."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import pytest
from airflow.sdk import Asset, AssetWatcher
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse
from airflow.sdk.module_loading import import_string
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.airflow_versions import needs_asset_state_store
from tests.support.polling import wait_until
from trainjob_airflow import TrainJobEventTrigger
from trainjob_airflow.triggers import event as event_module
from trainjob_airflow.triggers.event import FiredEvents

pytestmark = pytest.mark.usefixtures("airflow_environment")
SECONDS = 120
START = datetime(2026, 11, 21, tzinfo=timezone.utc)

# -- the record -------------------------------------------------------------------------------------------------------

STEPS = st.one_of(
    st.tuples(
        st.just("complete"), st.integers(0, 540)
    ),  # delay of the completion's event in seconds, below the overlap
    st.tuples(st.just("delete"), st.sampled_from([0, -1])),  # index of the TrainJob: the oldest or the newest
    st.tuples(st.sampled_from(["store_state", "restart", "list"]), st.just(0)),
)
# The first completion, which the record dropped, must not be new again after the second TrainJob was deleted.
TWO_RESTARTS = ["complete", "complete", "store_state", "restart", "delete", "store_state", "restart"]


class WatcherModel:
    """Model of a cluster, of a watcher that gets each change at once, and of its events."""

    def __init__(self):
        self.jobs, self.reported, self.now, self.number = {}, {}, 0, 0
        self.fired_events, self.stored = FiredEvents(), FiredEvents().to_dict()

    def report_new(self, uid):
        if self.fired_events.is_new(uid, self.jobs[uid]):
            self.fired_events.add(uid, self.jobs[uid], self.now)
            self.reported[uid] = [*self.reported.get(uid, []), self.now]

    def complete(self, delay):
        self.number += 1
        uid = f"u{self.number}"
        self.jobs[uid] = START + timedelta(seconds=self.now - delay)
        self.report_new(uid)

    def delete(self, index):
        if self.jobs:
            uid = list(self.jobs)[index]
            del self.jobs[uid]
            self.fired_events.remove(uid)

    def store_state(self, _):
        self.fired_events.mark_sent(self.now)
        self.stored = json.loads(json.dumps(self.fired_events.to_dict()))

    def restart(self, _):
        self.fired_events = FiredEvents(self.stored)
        self.list(0)

    def list(self, _):
        for uid in self.jobs:
            self.report_new(uid)


@settings(max_examples=300)
@given(st.lists(STEPS, max_size=40), st.lists(st.integers(1, 3000), min_size=40, max_size=40))
@example([(name, -1 if name == "delete" else 0) for name in TWO_RESTARTS], [700] * 7)
def test_each_completion_is_fired_once_unless_the_triggerer_died_before_it_was_sent(steps, pauses):
    watcher, sent = WatcherModel(), set()
    for (name, value), pause in zip(steps, pauses, strict=False):
        watcher.now += pause
        before = {uid: len(times) for uid, times in watcher.reported.items()}
        getattr(watcher, name)(value)
        if name == "store_state":
            sent = set(watcher.reported)
        again = {uid for uid, times in watcher.reported.items() if uid in before and len(times) > before[uid]}
        assert name == "restart" or not again
        assert not again & sent
        assert set(watcher.jobs) <= set(watcher.reported)


@given(st.lists(st.integers(0, 100_000), min_size=1))
def test_the_stored_record_has_only_recent_completions(ends):
    fired_events = FiredEvents()
    for number, end in enumerate(ends):
        fired_events.add(f"u{number}", START + timedelta(seconds=end))
    stored = fired_events.to_dict()
    recent = stored["told"]  # serialized name
    assert len(recent) == sum(end >= max(ends) - 600 for end in ends)


# -- the trigger ------------------------------------------------------------------------------------------------------


class AssetStateStore:
    """Replacement of Airflow's asset state store, which exists only in a triggerer."""

    def __init__(self):
        self.values, self.failures = {}, 0

    async def aget(self, key):
        if self.failures:
            self.failures -= 1
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.GENERIC_ERROR))
        return self.values.get(key)

    async def aset(self, key, value):
        self.values[key] = json.loads(json.dumps(value))


def apply_trainjob(cluster, name, script="true", spec=None, **metadata):
    trainer = {"image": "busybox", "command": ["sh", "-c", script]}
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer, **(spec or {})}
    meta = {"name": name, "namespace": "default", **metadata}
    body = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": meta, "spec": spec}
    return cluster.create_trainjob(body)


def wait_until_finished(cluster, name):
    """Return a coroutine that waits until the TrainJob has ended."""
    from trainjob.lifecycle import JobSelector, wait_external

    return asyncio.wait_for(wait_external(cluster, JobSelector("default", name)), SECONDS)


def run_trigger(trigger, store=None):
    """Start a trigger, and return its task and the queue of its events."""
    trigger.asset_state_store = store
    fired = asyncio.Queue()

    async def run():
        async for event in trigger.run():
            fired.put_nowait(event.payload)

    return SimpleNamespace(fired=fired, task=asyncio.create_task(run()))


async def stop_trigger(running):
    running.task.cancel()
    await asyncio.gather(running.task, return_exceptions=True)


async def next_names(running, count):
    """Return the sorted names of the TrainJobs in the next events."""
    events = [await asyncio.wait_for(running.fired.get(), SECONDS) for _ in range(count)]
    return sorted(event["reference"]["name"] for event in events)


async def wait_until_async(condition):
    """Wait until a condition is true, without blocking the event loop."""
    await asyncio.to_thread(wait_until, condition, SECONDS)


def count_stored_ends(store):
    """Return the number of stored completions; None if no record is stored yet."""
    key = "told"  # serialized name
    return sum(len(value[key]) for value in store.values.values()) if store.values else None


def test_a_completion_is_fired_once_also_after_a_restart(cluster, unique, monkeypatch):
    monkeypatch.setattr(event_module, "_SENT_SECONDS", 0.2)
    store, trigger = AssetStateStore(), TrainJobEventTrigger(label_selector=f"suite={unique}", name_prefix=unique)
    labelled = {"labels": {"suite": unique}}

    async def run():
        apply_trainjob(cluster, f"{unique}-before", **labelled)
        await wait_until_finished(cluster, f"{unique}-before")
        first = run_trigger(trigger, store)
        await wait_until_async(lambda: store.values)
        annotated = {**labelled, "annotations": {"trainjob.dev/model": "s3://models/a"}}
        apply_trainjob(cluster, f"{unique}-a", **annotated)
        apply_trainjob(cluster, f"{unique}-failed", "sleep 60", {"activeDeadlineSeconds": 1}, **labelled)
        apply_trainjob(cluster, f"other-{unique}", **labelled)
        apply_trainjob(cluster, f"{unique}-elsewhere")
        event = await asyncio.wait_for(first.fired.get(), SECONDS)
        assert event["reference"]["name"] == f"{unique}-a"
        assert (event["phase"], event["model"]) == ("Complete", "s3://models/a")
        assert datetime.fromisoformat(event["finished"]).tzinfo
        assert json.loads(json.dumps(event)) == event
        for name in (f"{unique}-failed", f"other-{unique}", f"{unique}-elsewhere"):
            await wait_until_finished(cluster, name)
        await wait_until_async(lambda: count_stored_ends(store) == 2)  # "before" and "a"
        await stop_trigger(first)

        apply_trainjob(cluster, f"{unique}-meanwhile", **labelled)
        await wait_until_finished(cluster, f"{unique}-meanwhile")
        second = run_trigger(trigger, store)
        assert await next_names(second, 1) == [f"{unique}-meanwhile"]
        apply_trainjob(cluster, f"{unique}-b", **labelled)
        assert await next_names(second, 1) == [f"{unique}-b"]
        assert first.fired.empty()
        assert second.fired.empty()
        await wait_until_async(lambda: count_stored_ends(store) == 4)
        await stop_trigger(second)
        informer = event_module.TrainJobHook().get_conn().trainjob_informer("default", f"suite={unique}")
        assert not informer._cache

    asyncio.run(run())


def test_an_event_that_was_not_sent_before_the_triggerer_died_is_fired_again(cluster, unique, monkeypatch):
    monkeypatch.setattr(event_module, "_SENT_SECONDS", 3600.0)
    store, trigger = AssetStateStore(), TrainJobEventTrigger(label_selector=f"suite={unique}")

    async def run():
        first = run_trigger(trigger, store)
        await wait_until_async(lambda: store.values)
        apply_trainjob(cluster, unique, labels={"suite": unique})
        assert await next_names(first, 1) == [unique]
        await stop_trigger(first)
        second = run_trigger(trigger, store)
        assert await next_names(second, 1) == [unique]
        await stop_trigger(second)

    asyncio.run(run())


def test_a_record_that_cannot_be_read_is_read_again_and_not_replaced(cluster, unique, monkeypatch):
    """A new record would contain all complete TrainJobs, so those of the downtime would fire no event."""
    monkeypatch.setattr(event_module, "_RETRY_SECONDS", 0.1)
    monkeypatch.setattr(event_module, "_SENT_SECONDS", 0.2)
    store, trigger = AssetStateStore(), TrainJobEventTrigger(label_selector=f"suite={unique}")

    async def run():
        first = run_trigger(trigger, store)
        await wait_until_async(lambda: store.values)
        await stop_trigger(first)
        apply_trainjob(cluster, unique, labels={"suite": unique})
        await wait_until_finished(cluster, unique)
        store.failures = 2
        second = run_trigger(trigger, store)
        assert await next_names(second, 1) == [unique]
        await stop_trigger(second)
        assert store.failures == 0

    asyncio.run(run())


@needs_asset_state_store
def test_a_watcher_of_several_assets_fires_events_without_a_record(cluster, unique):
    from airflow.sdk.execution_time.context import AssetStateStoreAccessors

    accessors = AssetStateStoreAccessors(inlets=[Asset("a"), Asset("b")])
    trigger = TrainJobEventTrigger(label_selector=f"suite={unique}")

    async def run():
        running = run_trigger(trigger, accessors)
        informer = event_module.TrainJobHook().get_conn().trainjob_informer("default", f"suite={unique}")
        await wait_until_async(lambda: informer._cache)
        apply_trainjob(cluster, unique, labels={"suite": unique})
        assert await next_names(running, 1) == [unique]
        await stop_trigger(running)

    asyncio.run(run())


@pytest.mark.parametrize("arguments", [{"kubernetes_conn_id": "not-there"}, {"label_selector": "a in"}])
def test_a_permanent_error_is_logged_and_the_watch_is_repeated(arguments, monkeypatch):
    monkeypatch.setattr(event_module, "_RETRY_SECONDS", 0.1)
    errors = []
    trigger = TrainJobEventTrigger(**arguments)
    monkeypatch.setattr(trigger.log, "error", lambda *message: errors.append(message))

    async def run():
        running = run_trigger(trigger)
        await wait_until_async(lambda: len(errors) >= 2)
        assert not running.task.done()
        await stop_trigger(running)

    asyncio.run(run())


def test_the_trigger_survives_serialization_and_an_asset_watcher_accepts_it():
    trigger = TrainJobEventTrigger(namespace="n", label_selector="a=b", name_prefix="p", kubernetes_conn_id=None)
    path, values = trigger.serialize()
    loaded = import_string(path)(**json.loads(json.dumps(values)))
    assert loaded.serialize() == (path, values)
    assert Asset("x", watchers=[AssetWatcher(name="w", trigger=trigger)]).watchers[0].trigger.serialize()[0] == path
