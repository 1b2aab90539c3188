"""Tests of the sensor and its trigger with TrainJobs of others on a laptop cluster."""

from __future__ import annotations

import asyncio
import json
import re
import time
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import pytest
from airflow.sdk import DAG
from airflow.sdk.module_loading import import_string

from tests.support.airflow_versions import needs_on_kill
from tests.support.polling import wait_until
from tests.support.recording_proxy import RecordingProxy
from trainjob.errors import ClusterUnreachable, InvalidSpec, JobDeleted, JobFailed, NoClusterConfigured
from trainjob.status import Category, Outcome, Phase
from trainjob_airflow import TrainJobEndTrigger, TrainJobOperator, TrainJobSensor, deferral
from trainjob_airflow.version_compat import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
    TaskDeferred,
)

pytestmark = [pytest.mark.usefixtures("airflow_environment")]
KEY = {"workflow": "d", "task": "t", "run": "r"}


def apply_trainjob(cluster, name, script, **spec):
    """Create a TrainJob as kubectl does, without labels of this project."""
    body = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}
    trainer = {"image": "busybox", "command": ["sh", "-c", script]}
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer, **spec}
    return cluster.create_trainjob({**body, "metadata": {"name": name, "namespace": "default"}, "spec": spec})


def delete_trainjob(cluster, name):
    cluster.delete_trainjob(name, "default", cluster.get_trainjob(name, "default")["metadata"]["uid"])


def sensor(**arguments):
    return TrainJobSensor(**{"task_id": "t", **arguments})


def trigger(**arguments):
    defaults = {"namespace": "", "name": "", "run_key": None, "deadline": None}
    return TrainJobEndTrigger(**{**defaults, "kubernetes_conn_id": "kubernetes_default", **arguments})


async def first_event(trigger, seconds=60):
    async def first():
        async for event in trigger.run():
            return event.payload
        raise AssertionError("no event")

    return await asyncio.wait_for(first(), seconds)


# -- with Airflow's own command ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_all_modes_of_the_sensor_wait_in_one_run(airflow, cluster, unique, tmp_path):
    """Sensors wait by name or by run key for TrainJobs that do not exist yet.

    Their modes are deferrable, `poke` and `reschedule`.
    """
    apply_trainjob(cluster, f"{unique}-f", "sleep 60", activeDeadlineSeconds=1)
    log = tmp_path / "log"
    process = airflow.start("dags", "test", "watching", "-c", json.dumps({"name": unique}), log=log)
    missing = {name: f"there is no TrainJob default/{name} yet" for name in (unique, f"{unique}-p", f"{unique}-r")}

    def ended():
        for name in [name for name, line in missing.items() if line in log.read_text()]:
            del missing[name]
            apply_trainjob(cluster, name, "true")
        return process.poll() is not None

    wait_until(ended)
    lines = log.read_text()
    run = re.search(r"run_id=(manual__\S+?)[,\s]", lines)[1]
    listed = airflow("tasks", "states-for-dag-run", "watching", run, "-o", "json").stdout
    states = {task["task_id"]: task["state"] for task in json.loads(listed[listed.index("[{") :])}
    good, bad = (
        ("train", "by_run_key", "print_result", "deferred", "poked", "again"),
        ("failing", "too_late", "nonsense"),
    )
    assert states == {**dict.fromkeys(good, "success"), **dict.fromkeys(bad, "failed")}, lines[-6000:]
    assert "result: Complete train-" in lines
    assert "DeadlineExceeded" in lines
    assert "name cannot be 'None'" in lines
    assert f"there is no TrainJob default/{unique}-never yet; the wait for it timed out" in lines


# -- the trigger ------------------------------------------------------------------------------------------------------


def test_the_trigger_fires_at_the_end_of_a_trainjob_that_did_not_exist_yet(cluster, unique):
    async def wait():
        waiting = asyncio.create_task(first_event(trigger(name=unique)))
        await asyncio.to_thread(apply_trainjob, cluster, unique, "true")
        return await waiting

    event = asyncio.run(wait())
    assert (event["outcome"]["phase"], event["reference"]["name"]) == ("Complete", unique)
    assert json.loads(json.dumps(event)) == event
    result = sensor(name=unique).execute_complete({}, event)
    assert {name: result[name] for name in ("job", "namespace", "phase", "attempt")} == {
        "job": unique,
        "namespace": "default",
        "phase": "Complete",
        "attempt": 1,
    }
    assert set(result) == {"job", "namespace", "uid", "phase", "progress", "attempt", "seconds", "usage"}
    assert result["usage"]["pod_seconds"] >= 0
    assert result["usage"]["complete"]
    assert sensor(name=unique).execute({}) == result  # a finished TrainJob needs no deferral


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        (
            {"name": "x", "deadline": 1.0},
            "WaitTimeout",
            "there is no TrainJob default/x yet; the wait for it timed out",
        ),
        ({"name": "Not A Name"}, "InvalidSpec", "name cannot be 'Not A Name'"),
        ({"run_key": {**KEY, "run": ""}}, "InvalidSpec", "run_key.run cannot be an empty string"),
    ],
)
def test_an_error_of_the_wait_is_an_event_that_fails_the_task(arguments, kind, words):
    event = asyncio.run(first_event(trigger(**arguments)))
    assert event["kind"] == kind
    assert words in event["error"]
    with pytest.raises(AirflowSensorTimeout if kind == "WaitTimeout" else AirflowFailException, match=words):
        sensor(name="x").execute_complete({}, event)


def test_a_missing_connection_is_retried():
    event = asyncio.run(first_event(trigger(name="x", kubernetes_conn_id="not-there")))
    assert (event["kind"], event["retryable"]) == ("NoClusterConfigured", True)
    with pytest.raises(NoClusterConfigured, match="Airflow has no connection 'not-there'"):
        sensor(name="x").execute_complete({}, event)
    with pytest.raises(NoClusterConfigured, match="Airflow has no connection 'not-there'"):
        sensor(name="x", kubernetes_conn_id="not-there").execute({})


def test_the_trigger_does_not_fire_in_its_first_seconds(cluster, unique, monkeypatch):
    apply_trainjob(cluster, unique, "true")
    wait_until(lambda: sensor(name=unique).poke({}))
    monkeypatch.setattr(deferral, "MIN_TRIGGER_SECONDS", 3600.0)
    event = asyncio.run(first_event(trigger(name=unique)))  # without a task instance, as in `dag.test()`
    assert event["outcome"]["phase"] == "Complete"
    scheduled = trigger(name=unique)
    scheduled.task_instance = SimpleNamespace(task_id="t")
    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(first_event(scheduled, 3))
    monkeypatch.setattr(deferral, "MIN_TRIGGER_SECONDS", 1.0)
    started_at = time.monotonic()
    assert asyncio.run(first_event(scheduled))["outcome"]["phase"] == "Complete"
    assert time.monotonic() - started_at >= 1.0


@needs_on_kill
def test_killing_the_task_does_not_change_the_trainjob(cluster, unique):
    apply_trainjob(cluster, unique, "sleep 600")
    asyncio.run(trigger(name=unique).on_kill())
    assert cluster.get_trainjob(unique, "default")["metadata"].get("deletionTimestamp") is None
    delete_trainjob(cluster, unique)


@pytest.mark.parametrize("which", [{"name": "x"}, {"run_key": KEY}])
def test_the_trigger_survives_serialization(which):
    original = trigger(**which, deadline=5.5)
    path, values = original.serialize()
    loaded = import_string(path)(**json.loads(json.dumps(values)))
    assert loaded.serialize() == (path, values)


def test_a_deferred_sensors_trigger_is_serializable_and_has_the_deadline(unique):
    started = datetime(2026, 1, 1, tzinfo=timezone.utc)
    for selector in ({"name": unique}, {"run_key": {**KEY, "map_index": -1}}):
        waiting = sensor(**selector, timeout=100, execution_timeout=timedelta(seconds=50))
        with pytest.raises(TaskDeferred) as raised:
            waiting.execute({"ti": SimpleNamespace(start_date=started)})
        _, values = raised.value.trigger.serialize()
        assert values["deadline"] == started.timestamp() + 50
        assert values["namespace"] == "default"
        json.dumps(values)


def test_the_run_key_of_a_task_finds_its_operators_trainjob(cluster, unique, monkeypatch):
    """The operator submits the TrainJob, so that the test covers engine and origin of both."""
    from datetime import datetime, timezone

    ti = SimpleNamespace(
        dag_id="d", task_id="t", run_id=unique, map_index=3, max_tries=0, try_number=1, xcom_push=lambda *_: None
    )
    task = TrainJobOperator(task_id="t", trainer={"image": "busybox", "command": ["true"]}, deferrable=False)
    run = SimpleNamespace(start_date=datetime.now(timezone.utc), clear_number=0)
    key = {**KEY, "run": unique, "map_index": "3"}
    assert not sensor(run_key=key).poke({})
    result = task.execute({"ti": ti, "task": task, "dag_run": run, "outlet_events": {}})
    assert sensor(run_key=key).execute({})["uid"] == result["uid"]
    assert not sensor(run_key={**key, "map_index": -1}).poke({})
    assert not sensor(run_key={**key, "engine": "kfp"}).poke({})


def test_many_triggers_share_one_list_and_one_watch(laptop, cluster, unique, monkeypatch):
    with RecordingProxy(laptop.kubeconfig.read_text()) as proxy:
        extra = {"kube_config": proxy.kubeconfig, "namespace": "default"}
        connection = json.dumps({"conn_type": "kubernetes", "extra": extra})
        monkeypatch.setenv("AIRFLOW_CONN_THROUGH_PROXY", connection)

        async def wait_for_all():
            names = [f"{unique}-{n}" for n in range(20)]
            waiting = [
                asyncio.create_task(first_event(trigger(name=name, kubernetes_conn_id="through_proxy")))
                for name in names
            ]
            await asyncio.to_thread(lambda: wait_until(lambda: proxy.count_watches("trainjobs")))
            for name in names[:2]:
                await asyncio.to_thread(apply_trainjob, cluster, name, "true")
            ended = await asyncio.gather(*waiting[:2])
            for task in waiting[2:]:
                task.cancel()
            return ended

        assert [event["outcome"]["phase"] for event in asyncio.run(wait_for_all())] == ["Complete"] * 2
        assert (proxy.count_lists("trainjobs"), proxy.count_watches("trainjobs")) == (1, 1), proxy.requests


# -- end of the task --------------------------------------------------------------------------------------------------

FAILED = Outcome("j", "default", "u", Phase.FAILED, Category.APPLICATION, "FailedJobs", "row 7", "node", 0, 3)
DELETED = Outcome("j", "default", "u", Phase.DELETED, Category.DELETED, "NotFound", "gone")
REFERENCE = {"name": "j", "namespace": "default", "uid": "u"}


def end_event(outcome):
    return {"reference": REFERENCE, "outcome": outcome.to_dict()}


def error_event(kind):
    return {"error": "words", "kind": kind}


@pytest.mark.parametrize(
    ("arguments", "event", "raises"),
    [
        ({"name": "j"}, end_event(FAILED), AirflowFailException),  # no other attempt follows
        ({"run_key": KEY}, end_event(FAILED), JobFailed),  # there may be another attempt
        ({"name": "j"}, end_event(DELETED), JobDeleted),  # there may be another TrainJob of this name
        ({"name": "j", "soft_fail": True}, end_event(FAILED), AirflowSkipException),
        ({"name": "j", "soft_fail": True}, end_event(DELETED), JobDeleted),
        ({"run_key": KEY, "never_fail": True}, end_event(FAILED), AirflowSkipException),
        ({"name": "j"}, error_event("WaitTimeout"), AirflowSensorTimeout),
        ({"name": "j", "execution_timeout": timedelta(1)}, error_event("WaitTimeout"), AirflowTaskTimeout),
        ({"name": "j", "execution_timeout": timedelta(9)}, error_event("WaitTimeout"), AirflowSensorTimeout),
        ({"name": "j"}, error_event("PermissionDenied"), AirflowFailException),
        ({"name": "j"}, error_event("ClusterUnreachable"), ClusterUnreachable),
        ({"name": "j", "never_fail": True}, error_event("ClusterUnreachable"), AirflowSkipException),
    ],
)
def test_the_event_decides_how_the_task_ends(arguments, event, raises):
    with pytest.raises(raises) as raised:
        sensor(**arguments).execute_complete({}, json.loads(json.dumps(event)))
    if raises in (AirflowFailException, JobFailed) and "outcome" in event:
        assert "step node, rank 0, exit code 3: FailedJobs: row 7" in str(raised.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {"name": "{{ nothing }}"},
        {"namespace": "{{ nothing }}"},
        {"run_key": "train", "name": ""},
    ],
)
@pytest.mark.parametrize("where", [{"deferrable": True}, {"mode": "poke"}])
def test_permanent_errors_fail_the_task_without_retry(arguments, where):
    with pytest.raises(AirflowFailException):
        sensor(**{"name": "j", **arguments}, **where).execute({})
    with pytest.raises(AirflowSkipException):
        sensor(**{"name": "j", **arguments}, **where, soft_fail=True).execute({})


# -- when the DAG is parsed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, ["name, run_key", "both omitted"]),
        ({"name": "a", "run_key": KEY}, ["name, run_key", "both"]),
        ({"run_key": {"workflow": "w"}}, ["run_key", "'workflow'", "task, run"]),
        ({"run_key": {**KEY, "dag": "w"}}, ["run_key", "'dag'", "map_index"]),
    ],
)
def test_invalid_arguments_are_refused_when_the_dag_is_parsed(arguments, words):
    with pytest.raises(InvalidSpec) as raised:
        sensor(**arguments)
    assert all(word in str(raised.value) for word in words)


def test_a_sensor_with_a_mode_is_not_deferrable_by_default(monkeypatch):
    monkeypatch.delenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", raising=False)
    assert sensor(name="x").deferrable
    assert not sensor(name="x", mode="reschedule").deferrable
    assert sensor(name="x", mode="reschedule", deferrable=True).deferrable
    monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", "False")
    assert not sensor(name="x").deferrable


def test_a_dag_with_a_sensor_that_starts_in_the_triggerer_is_serializable():
    from tests.support.airflow_versions import DagSerialization

    with DAG("d", schedule=None) as dag:
        TrainJobSensor(task_id="a", run_key={**KEY, "run": "{{ run_id }}"}, start_from_trigger=True, timeout=60)
        TrainJobSensor.partial(task_id="b", start_from_trigger=True).expand(name=["x", "y"])
        TrainJobSensor(task_id="c", name="x", start_from_trigger=True, mode="poke")
    stored = DagSerialization.from_dict(json.loads(json.dumps(DagSerialization.to_dict(dag))))
    a, b, c = (stored.get_task(name) for name in "abc")
    assert a.start_from_trigger
    assert a.start_trigger_args.timeout == timedelta(seconds=60)
    assert a.start_trigger_args.next_method == "execute_complete"
    assert b.start_trigger_args is None  # a mapped sensor starts on a worker
    assert not c.start_from_trigger


def test_a_sensor_with_another_tasks_result_cannot_start_in_the_triggerer():
    with DAG("d", schedule=None):
        first = TrainJobSensor(task_id="a", name="x")
        with pytest.raises(InvalidSpec, match="start_from_trigger"):
            TrainJobSensor(task_id="b", name=first.output["job"], start_from_trigger=True)
