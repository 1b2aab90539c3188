"""Tests of the arguments that select a cluster for one task: a context of the kubeconfig, or the pod's account."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainjob.errors import InvalidSpec, NoClusterConfigured
from trainjob_airflow import (
    DeleteTrainJobOperator,
    SuspendTrainJobOperator,
    TrainJobEndTrigger,
    TrainJobOperator,
    TrainJobSensor,
    TrainJobSweepOperator,
    TrainJobTrigger,
)
from trainjob_airflow.hooks.trainjob import TrainJobHook
from trainjob_airflow.version_compat import AirflowFailException, TaskDeferred

pytestmark = pytest.mark.usefixtures("airflow_environment")

KUBECONFIG = {"kube_config_path": "/c", "cluster_context": "a", "namespace": "n"}


@pytest.mark.parametrize(
    ("extra", "arguments", "expected"),
    [
        (KUBECONFIG, {}, {"kubeconfig": "/c", "context": "a", "namespace": "n"}),
        (KUBECONFIG, {"cluster_context": "b"}, {"kubeconfig": "/c", "context": "b", "namespace": "n"}),
        (KUBECONFIG, {"in_cluster": True}, {"in_cluster": True, "namespace": "n"}),
        (
            {**KUBECONFIG, "extra__kubernetes__cluster_context": "old"},
            {"cluster_context": "b"},
            {"kubeconfig": "/c", "context": "b", "namespace": "n"},
        ),
        ({"in_cluster": True}, {"in_cluster": False, "cluster_context": "b"}, {"context": "b"}),
        ({"extra__kubernetes__in_cluster": True}, {"in_cluster": False}, {}),
    ],
)
def test_the_tasks_arguments_replace_those_of_the_connection(extra, arguments, expected, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", json.dumps({"conn_type": "kubernetes", "extra": extra}))
    hook = TrainJobHook("other", **arguments)
    assert hook.read_connection().to_dict() == expected


@pytest.mark.parametrize(
    ("extra", "arguments"),
    [({"in_cluster": True}, {}), ({}, {"in_cluster": True})],
    ids=["the connection's in_cluster", "the task's in_cluster"],
)
def test_a_context_of_the_service_account_is_refused(extra, arguments, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", json.dumps({"conn_type": "kubernetes", "extra": extra}))
    with pytest.raises(InvalidSpec, match=r"cluster_context: .b.*in_cluster"):
        TrainJobHook("other", cluster_context="b", **arguments).read_connection()


def test_hooks_with_other_contexts_do_not_share_a_read():
    async def connect():
        hooks = [TrainJobHook(), TrainJobHook(cluster_context="not-there")]
        found, error = await asyncio.gather(*(hook.get_conn_async() for hook in hooks), return_exceptions=True)
        assert found.server
        assert isinstance(error, NoClusterConfigured)
        assert "not-there" in str(error)

    asyncio.run(connect())


def test_a_deferred_task_and_its_trigger_use_the_tasks_context(cluster, unique):
    (name,) = {item["name"] for item in json.loads(_kubeconfig_text())["contexts"]}
    due = datetime(2026, 1, 1, tzinfo=timezone.utc)
    ti = SimpleNamespace(dag_id="d", task_id="t", run_id=unique, map_index=-1, try_number=1, max_tries=0)
    trainer = {"image": "busybox", "command": ["sleep", "60"]}
    task = TrainJobOperator(task_id="t", trainer=trainer, deferrable=True, cluster_context=name)
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(
            {"ti": ti, "task": task, "dag_run": SimpleNamespace(run_after=due, start_date=due, clear_number=0)}
        )
    trigger = deferred.value.trigger
    _, arguments = trigger.serialize()
    assert (arguments["cluster_context"], arguments["in_cluster"]) == (name, None)
    loaded = TrainJobTrigger(**json.loads(json.dumps(arguments)))
    asyncio.run(loaded.on_kill())
    assert not cluster.get_trainjob(trigger.reference["name"], "default")


@pytest.mark.parametrize("kind", [TrainJobSensor, DeleteTrainJobOperator, SuspendTrainJobOperator])
def test_other_tasks_use_their_own_context(kind):
    task = kind(task_id="t", name="j", cluster_context="not-there")
    with pytest.raises(AirflowFailException, match="not-there"):
        task.execute({})


def test_a_sweep_uses_its_own_context():
    with pytest.raises(AirflowFailException, match="not-there"):
        TrainJobSweepOperator(task_id="t", cluster_context="not-there").execute({})


@pytest.mark.parametrize(
    "arguments",
    [
        {"reference": {}, "limits": {}, "deadline": None, "kubernetes_conn_id": "c"},
        {"namespace": "n", "name": "j", "run_key": None, "deadline": None, "kubernetes_conn_id": "c"},
    ],
    ids=["of an operator", "of a sensor"],
)
def test_a_trigger_of_the_previous_version_loads(arguments):
    trigger = (TrainJobTrigger if "limits" in arguments else TrainJobEndTrigger)(**arguments)
    assert trigger.serialize()[1].items() >= {**arguments, "cluster_context": None, "in_cluster": None}.items()


def _kubeconfig_text():
    connection = json.loads(os.environ["AIRFLOW_CONN_KUBERNETES_DEFAULT"])
    return Path(connection["extra"]["kube_config_path"]).read_text()
