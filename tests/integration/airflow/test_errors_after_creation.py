"""Tests of unexpected errors after a TrainJob's creation: the next try adopts it, or the kill action ends it."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timezone
from types import SimpleNamespace

import pytest
from airflow.sdk.module_loading import import_string

from tests.support import crash_points
from tests.support.airflow_versions import needs_retry_policy
from tests.support.crash_points import CrashPoint, raise_at
from trainjob import errors
from trainjob.lifecycle import RunKey
from trainjob.manifest import labels
from trainjob.status import derive_verdict
from trainjob_airflow import TrainJobOperator
from trainjob_airflow.run_key import get_run_key
from trainjob_airflow.version_compat import AirflowFailException, TaskDeferralError, TaskDeferred

pytestmark = pytest.mark.usefixtures("airflow_environment")

COMMON_POINTS = (
    crash_points.AFTER_CREATE,
    crash_points.PERSISTED,
    crash_points.BEFORE_LINKS,
    crash_points.BEFORE_WAIT,
    crash_points.BEFORE_TASK_LOG,
    crash_points.SUBMITTED,
    crash_points.WAITING,
)
POINTS = [
    *((False, point) for point in COMMON_POINTS),
    *((True, point) for point in COMMON_POINTS),
    (True, crash_points.BEFORE_DEFERRAL),
    (True, crash_points.TRIGGER_STARTED),
    (True, crash_points.BEFORE_TRIGGER_CONNECTS),
]
NAMES = [f"{'deferred' if deferred else 'worker'}: {point.name}" for deferred, point in POINTS]
BEFORE_KILL_ACTION = CrashPoint("before the kill action", "before", "trainjob.lifecycle.job_guard:cancel")


def operator(*, deferrable=True, **arguments):
    command = {"image": "busybox", "command": ["sleep", "60"]}
    return TrainJobOperator(task_id="train", trainer=command, deferrable=deferrable, **arguments)


def make_context(task, run, *, try_number=1, max_tries=0):
    ti = SimpleNamespace(
        dag_id="errors",
        task_id=task.task_id,
        run_id=run,
        map_index=-1,
        try_number=try_number,
        max_tries=max_tries,
        xcom_push=lambda *_: None,
    )
    due = datetime(2026, 1, 1, tzinfo=timezone.utc)
    started = SimpleNamespace(run_after=due, start_date=due, clear_number=0)
    return {"ti": ti, "task": task, "dag_run": started, "outlet_events": {}}


def run_try(task, context):
    """Run one try in the way of Airflow's runner and triggerer.

    After an error of the trigger, `execute_complete` is not called.
    """
    try:
        return task.execute(context)
    except TaskDeferred as deferred:
        path, arguments = deferred.trigger.serialize()
    return resume(operator(on_kill=task.on_kill_action), context, path, arguments)


def resume(task, context, path, arguments, **kept):
    trigger = import_string(path)(**json.loads(json.dumps(arguments)))

    async def first_event():
        async for event in trigger.run():
            return json.loads(json.dumps(event.payload))
        raise AssertionError("no event")

    try:
        event = asyncio.run(first_event())
    except Exception as error:  # noqa: BLE001 - as TriggerRunner.run_trigger and fetch_next_context do
        failure = {"error": "Trigger failure", "traceback": [repr(error)]}
        return task.resume_execution("__fail__", failure, context)
    return task.resume_execution("execute_complete", {**kept, "event": event}, context)


def list_trainjobs(cluster, context):
    return cluster.list_trainjobs("default", f"{labels.RUN_KEY}={get_run_key(context).digest}")


def active_uids(cluster, context):
    """Return the UIDs of the TrainJobs that have not ended and are not deleted or suspended."""
    found = [job for job in list_trainjobs(cluster, context) if "deletionTimestamp" not in job["metadata"]]
    return [
        job["metadata"]["uid"]
        for job in found
        if not derive_verdict(job).phase.finished and not job["spec"].get("suspend")
    ]


def delete_trainjobs(cluster, context):
    for job in list_trainjobs(cluster, context):
        cluster.delete_trainjob(job["metadata"]["name"], "default", job["metadata"]["uid"])


def adopt_in_next_try(task, run):
    """Return the UID of the TrainJob that the next try waits for."""
    with pytest.raises(TaskDeferred) as deferred:
        operator().execute(make_context(task, run, try_number=2, max_tries=1))
    reference = deferred.value.trigger.reference
    assert reference["adopted"]
    return reference["uid"]


@pytest.mark.parametrize(("deferred", "point"), POINTS, ids=NAMES)
def test_without_another_try_the_trainjob_is_deleted(cluster, unique, capsys, deferred, point):
    task = operator(deferrable=deferred)
    context = make_context(task, unique)
    expected = pytest.raises((ImportError, TaskDeferralError), match="injected")
    with raise_at(point, ImportError("injected")), expected:
        run_try(task, context)
    assert not active_uids(cluster, context)
    assert "it was deleted: its task failed, and no other try follows" in capsys.readouterr().out


@pytest.mark.parametrize(("deferred", "point"), POINTS, ids=NAMES)
def test_the_next_try_adopts_the_trainjob(cluster, unique, capsys, deferred, point):
    task = operator(deferrable=deferred)
    context = make_context(task, unique, max_tries=1)
    expected = pytest.raises((ImportError, TaskDeferralError), match="injected")
    with raise_at(point, ImportError("injected")), expected:
        run_try(task, context)
    [uid] = active_uids(cluster, context)
    assert "the next try of the task adopts it" in capsys.readouterr().out
    assert adopt_in_next_try(task, unique) == uid
    assert [job["metadata"]["uid"] for job in list_trainjobs(cluster, context)] == [uid]
    delete_trainjobs(cluster, context)


@pytest.mark.parametrize(("action", "runs"), [("suspend", False), ("keep", True)])
def test_the_kill_action_is_applied_after_the_last_try(cluster, unique, action, runs):
    task = operator(on_kill=action)
    context = make_context(task, unique)
    with (
        raise_at(crash_points.TRIGGER_STARTED, ImportError("injected")),
        pytest.raises(TaskDeferralError, match="injected"),
    ):
        run_try(task, context)
    [job] = list_trainjobs(cluster, context)
    assert bool(active_uids(cluster, context)) is runs
    assert job["spec"].get("suspend", False) is not runs
    delete_trainjobs(cluster, context)


@pytest.mark.parametrize("point", crash_points.ADOPTION_POINTS)
def test_an_adopted_trainjob_is_deleted_after_the_last_try(cluster, unique, point):
    first = operator()
    with pytest.raises(TaskDeferred):
        first.execute(make_context(first, unique, max_tries=1))
    task = operator()
    context = make_context(task, unique, try_number=2, max_tries=1)
    with raise_at(point, ImportError("injected")), pytest.raises(ImportError, match="injected"):
        run_try(task, context)
    assert not active_uids(cluster, context)


def test_a_permanent_error_deletes_the_trainjob_at_once(cluster, unique):
    task = operator()
    context = make_context(task, unique, max_tries=5)
    with (
        raise_at(crash_points.BEFORE_LINKS, errors.PermissionDenied("no")),
        pytest.raises(AirflowFailException, match="no"),
    ):
        run_try(task, context)
    assert not active_uids(cluster, context)


@needs_retry_policy
def test_a_retry_policy_that_fails_the_task_deletes_the_trainjob(cluster, unique):
    from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule

    policy = ExceptionRetryPolicy([RetryRule(exception="builtins.ImportError", action=RetryAction.FAIL)])
    task = operator(deferrable=False, retry_policy=policy)
    context = make_context(task, unique, max_tries=5)
    with raise_at(crash_points.BEFORE_WAIT, ImportError("injected")), pytest.raises(ImportError):
        run_try(task, context)
    assert not active_uids(cluster, context)


def test_a_trigger_that_airflow_cannot_load_retains_the_trainjob(cluster, unique, capsys):
    """The triggerer may have another version of the provider, and the next try adopts the TrainJob."""
    first = operator()
    context = make_context(first, unique)
    with pytest.raises(TaskDeferred):
        first.execute(context)
    with pytest.raises(TaskDeferralError, match="Trigger failure"):
        operator().resume_execution("__fail__", {"error": "Trigger failure", "traceback": ["ImportError"]}, context)
    [uid] = active_uids(cluster, context)
    assert "Its TrainJob continues" in capsys.readouterr().out
    assert adopt_in_next_try(first, unique) == uid
    delete_trainjobs(cluster, context)


def test_a_failing_kill_action_does_not_hide_the_error(cluster, unique, capsys):
    task = operator(deferrable=False)
    context = make_context(task, unique)
    broken, first = (
        raise_at(BEFORE_KILL_ACTION, RuntimeError("broken")),
        raise_at(crash_points.BEFORE_WAIT, ImportError("injected")),
    )
    with first, broken, pytest.raises(ImportError, match="injected"):
        run_try(task, context)
    assert "because its on_kill action failed" in capsys.readouterr().out
    assert active_uids(cluster, context)
    delete_trainjobs(cluster, context)


# Data that commit 975860f stored; later versions must continue with it.
KEY = RunKey("airflow", "nightly", "train", "scheduled__2026-01-01", "", "https://airflow.example")
OLD_JOB = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {
        "name": "train-f611cbe3",
        "namespace": "default",
        "labels": {
            "app.kubernetes.io/managed-by": "trainjob",
            "trainjob.dev/engine": "airflow",
            "trainjob.dev/workflow": "nightly",
            "trainjob.dev/task": "train",
            "trainjob.dev/run": "scheduled__2026-01-01",
            "trainjob.dev/run-key": "a60d56183dbce981",
            "trainjob.dev/attempt": "1",
        },
        "annotations": {
            "trainjob.dev/run-key": '{"engine":"airflow","map_index":"","origin":"https://airflow.example",'
            '"run":"scheduled__2026-01-01","task":"train","workflow":"nightly"}',
            "trainjob.dev/spec-hash": "0573c7f11674a67f",
            "trainjob.dev/renewal": "1",
        },
    },
    "spec": {
        "runtimeRef": {
            "apiGroup": "trainer.kubeflow.org",
            "kind": "ClusterTrainingRuntime",
            "name": "torch-distributed",
        },
        "trainer": {"image": "busybox", "command": ["sleep", "60"]},
    },
}


@pytest.fixture
def old_job(cluster, monkeypatch):
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example")
    created = cluster.create_trainjob(OLD_JOB)
    yield created["metadata"]
    cluster.delete_trainjob("train-f611cbe3", "default", created["metadata"]["uid"])


def make_old_context(task):
    context = make_context(task, KEY.run, try_number=2, max_tries=1)
    context["ti"].dag_id = KEY.workflow
    context["dag_run"].start_date = datetime(2026, 1, 1, tzinfo=timezone.utc)
    return context


def test_a_trainjob_of_an_earlier_release_is_adopted(cluster, old_job):
    task = operator()
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(make_old_context(task))
    assert (deferred.value.trigger.reference["uid"], deferred.value.trigger.reference["adopted"]) == (
        old_job["uid"],
        True,
    )


def test_a_trigger_that_an_earlier_release_serialized_continues(cluster, old_job):
    arguments = {
        "reference": {
            "name": "train-f611cbe3",
            "namespace": "default",
            "uid": old_job["uid"],
            "attempt": 1,
            "adopted": False,
            "adopted_at": "",
        },
        "limits": {"max_restarts": 0, "on_timeout": "delete", "on_failure": "delete"},
        "deadline": 1.0,
        "kubernetes_conn_id": "kubernetes_default",
        "on_kill_action": "delete",
    }
    task = operator()
    with pytest.raises(errors.WaitTimeout, match="it was deleted"):
        resume(task, make_old_context(task), "trainjob_airflow.triggers.trainjob.TrainJobTrigger", arguments)
