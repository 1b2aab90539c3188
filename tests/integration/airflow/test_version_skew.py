"""Tests of parts of Airflow with different versions of the provider, as during an upgrade.

The values of the older version have only the fields that they had at first. Those of the newer version have one more
field in each serialized class and one more argument of each trigger. Whatever cannot be read fails the try, and never
ends the TrainJob.
"""

from __future__ import annotations

import asyncio
import json

import pytest
from airflow.sdk.module_loading import import_string

from tests.integration.airflow.test_errors_after_creation import (
    active_uids,
    delete_trainjobs,
    make_context,
    operator,
    resume,
)
from trainjob.errors import IncompatibleVersion, TrainJobError
from trainjob_airflow import TrainJobSensor
from trainjob_airflow.operators import base
from trainjob_airflow.version_compat import TaskDeferralError, TaskDeferred

pytestmark = pytest.mark.usefixtures("airflow_environment")

NEW = {"of_next_version": {"a": [1]}}
OUTCOME = {
    "job": "a",
    "namespace": "default",
    "uid": "u",
    "phase": "Complete",
    "category": "Succeeded",
    "reason": "",
    "message": "",
}
NEW_OUTCOME = {
    **OUTCOME,
    **NEW,
    "category": "OfNextVersion",
    "progress": {"step": 3, **NEW},
    "usage": {"pod_seconds": 1.0, "resource_seconds": {}, **NEW},
}
VERSIONS = pytest.mark.parametrize("version", ["older", "newer"])
UNREADABLE = {
    "a new phase": {"outcome": {**OUTCOME, "phase": "Resting"}},
    "an outcome of another form": {"outcome": [OUTCOME]},
    "no outcome and no error": {"result": {}},
    "a reference of another form": {"reference": {"job": "a"}, "outcome": OUTCOME},
    "an error of another form": {"error": "no", "kind": "OfNextVersion", "retryable": True},
}


def in_version(version, reference):
    """Return the reference as another version serializes it."""
    if version == "newer":
        return {**reference, **NEW, "cluster": {**reference["cluster"], **NEW}}
    return {name: reference[name] for name in ("name", "namespace", "uid", "attempt", "adopted", "adopted_at")}


@pytest.fixture
def deferred(cluster, unique):
    """Yield the context of a task without retries, and the stored trigger of its deferral."""
    task = operator()
    context = make_context(task, unique)
    with pytest.raises(TaskDeferred) as raised:
        task.execute(context)
    path, arguments = raised.value.trigger.serialize()
    yield context, path, json.loads(json.dumps(arguments))
    delete_trainjobs(cluster, context)


@VERSIONS
def test_a_trigger_continues_a_deferral_of_another_version(cluster, deferred, version):
    context, path, arguments = deferred
    arguments["reference"] = in_version(version, arguments["reference"])
    cluster.patch_trainjob(
        arguments["reference"]["name"], "default", arguments["reference"]["uid"], annotations={"a": "b"}
    )
    if version == "newer":
        arguments |= {**NEW, "limits": {**arguments["limits"], **NEW, "total": 0.0, "on_timeout": "keep"}}
    else:
        arguments = {"reference": arguments["reference"], "limits": {"total": 0.0, "on_timeout": "keep"}}
    with pytest.raises(TrainJobError, match="the limit on its total time is reached"):
        resume(operator(), context, path, arguments)
    assert active_uids(cluster, context) == [arguments["reference"]["uid"]]


def test_a_trigger_that_cannot_read_its_arguments_retains_the_trainjob(cluster, deferred):
    context, path, arguments = deferred
    arguments["limits"]["on_timeout"] = "hibernate"
    with pytest.raises(IncompatibleVersion, match="hibernate"):
        resume(operator(), context, path, arguments)
    assert active_uids(cluster, context) == [arguments["reference"]["uid"]]


@VERSIONS
def test_a_worker_reads_the_event_of_another_version(deferred, version, monkeypatch):
    monkeypatch.setattr(base, "_deferred_texts", {})  # another process has deferred the task
    context, _, arguments = deferred
    outcome = NEW_OUTCOME if version == "newer" else OUTCOME
    event = {"reference": in_version(version, arguments["reference"]), "outcome": outcome}
    kept = {"event": event}
    if version == "newer":
        event |= NEW
        kept |= {"rendered_trainjob": "kind: TrainJob", **NEW}
    task = operator()
    result = task.resume_execution("execute_complete", kept, context)
    assert (result["phase"], result["attempt"]) == ("Complete", 1)
    assert task.rendered_trainjob == kept.get("rendered_trainjob")


@pytest.mark.parametrize("name", UNREADABLE)
def test_an_event_that_cannot_be_read_fails_the_try_and_retains_the_trainjob(cluster, deferred, name):
    context, _, arguments = deferred
    event = {"reference": arguments["reference"], **UNREADABLE[name]}
    with pytest.raises(TrainJobError) as raised:
        operator().resume_execution("execute_complete", {"event": event}, context)
    assert raised.value.retryable
    assert active_uids(cluster, context) == [arguments["reference"]["uid"]]


def test_an_unexpected_error_of_the_trigger_still_ends_the_trainjob_of_the_last_try(cluster, deferred):
    context, _, arguments = deferred
    event = {"reference": arguments["reference"], "error": "no module", "kind": "ImportError"}
    with pytest.raises(TaskDeferralError):
        operator().resume_execution("execute_complete", {"event": event}, context)
    assert not active_uids(cluster, context)


@pytest.mark.parametrize("name", ["trainjob.TrainJobTrigger", "end.TrainJobEndTrigger", "event.TrainJobEventTrigger"])
def test_a_trigger_ignores_the_arguments_of_a_newer_version(name):
    path = f"trainjob_airflow.triggers.{name}"
    required = {"reference": {"name": "a", "namespace": "b", "uid": "c"}} if "TrainJobTrigger" in name else {}
    _, arguments = import_string(path)(**required, **NEW).serialize()
    assert NEW.keys().isdisjoint(arguments)


@VERSIONS
def test_a_sensor_reads_the_event_of_another_version(version):
    reference = {"name": "a", "namespace": "default", "uid": "u", **(NEW if version == "newer" else {})}
    event = {"reference": reference, "outcome": NEW_OUTCOME if version == "newer" else OUTCOME}
    assert TrainJobSensor(task_id="t", name="a").execute_complete({}, event)["phase"] == "Complete"


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_sensor_fails_its_try_after_an_event_that_it_cannot_read(name):
    with pytest.raises(TrainJobError) as raised:
        TrainJobSensor(task_id="t", name="a").execute_complete({}, {"reference": {}, **UNREADABLE[name]})
    assert raised.value.retryable


def test_a_sensors_trigger_ignores_a_new_field_of_the_run_key():
    """The selector is valid, so the trigger waits until its deadline."""
    trigger = import_string("trainjob_airflow.triggers.end.TrainJobEndTrigger")(
        run_key={"workflow": "w", "task": "t", "run": "r", **NEW}, deadline=1.0
    )

    async def first_event():
        return await anext(trigger.run())

    assert asyncio.run(first_event()).payload["kind"] == "WaitTimeout"
