"""Tests of the field `rendered_trainjob`, which Airflow shows in "Rendered Templates"."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path

import pytest
import yaml

import trainjob_airflow
from tests.integration.airflow.test_errors_after_creation import make_context, resume
from tests.support.airflow_versions import DagSerialization, needs_overwritten_fields
from trainjob.lifecycle import prepared_job
from trainjob.manifest import to_trainjob
from trainjob_airflow import FineTuneOperator, TrainJobOperator
from trainjob_airflow.decorators.trainjob import TrainJobDecoratedOperator
from trainjob_airflow.operators.base import StepOperator
from trainjob_airflow.operators.rendered_trainjob import dump_within, mask_values, render_trainjob
from trainjob_airflow.version_compat import TaskDeferred


def read_rendered(dag):
    """Return the rendered fields of the newest run by map index."""
    database = sqlite3.connect(f"file:{Path(os.environ['AIRFLOW_HOME'], 'airflow.db')}?mode=ro", uri=True)
    query = "select run_id from dag_run where dag_id = ? order by id desc limit 1"
    [run] = database.execute(query, (dag,)).fetchone()
    query = "select map_index, rendered_fields from rendered_task_instance_fields where dag_id = ? and run_id = ?"
    found = {index: json.loads(fields) for index, fields in database.execute(query, (dag, run))}
    database.close()
    return found


@pytest.mark.slow
@needs_overwritten_fields
def test_mapped_tasks_have_the_trainjob_as_it_was_sent(airflow, cluster):
    done = airflow("dags", "test", "sweeping")
    rendered = read_rendered("sweeping")
    assert sorted(rendered) == [0, 1, 2], done.stdout[-4000:]
    for index, rate in enumerate(("0.1", "0.2", "0.3")):
        shown = yaml.safe_load(rendered[index]["rendered_trainjob"])
        meta = shown["metadata"]
        sent = cluster.get_trainjob(meta["name"], meta["namespace"])
        env = {"name": "RATE", "value": rate}
        if sent is None:  # the failed one was deleted
            assert (index, env in shown["spec"]["trainer"]["env"]) == (2, True)
            continue
        masked = {"name": "MY_PROXY", "value": "***"}
        assert masked in shown["spec"]["trainer"]["env"]
        assert env in shown["spec"]["trainer"]["env"]
        assert shown["spec"]["trainer"]["command"] == sent["spec"]["trainer"]["command"]
        assert meta["labels"].items() <= sent["metadata"]["labels"].items()
        assert meta["annotations"].items() <= sent["metadata"]["annotations"].items()
    assert "not-a-secret-of-ours" not in json.dumps([each["rendered_trainjob"] for each in rendered.values()])
    assert "is not shown in Rendered Templates" not in done.stdout


def test_the_field_is_serialized_with_the_dag_and_empty_before_the_task_runs():
    from airflow.sdk import DAG

    with DAG("serialized") as dag:
        TrainJobOperator(task_id="train", trainer={"image": "busybox", "command": ["true"]})
        configs = [{"framework": "torchtune", "epochs": epochs} for epochs in (1, 2)]
        FineTuneOperator.partial(task_id="tune", model="m", workspace="w").expand(config=configs)
    tasks = DagSerialization.to_dict(dag)["dag"]["tasks"]
    for task in tasks:
        assert "rendered_trainjob" in task["__var"]["template_fields"]
        assert not task["__var"].get("rendered_trainjob")


def test_every_operator_of_a_step_has_the_field():
    public = [getattr(trainjob_airflow, name) for name in trainjob_airflow.__all__]
    operators = [each for each in public if isinstance(each, type) and issubclass(each, StepOperator)]
    assert len(operators) >= 5
    for operator in (*operators, TrainJobDecoratedOperator):
        assert set(StepOperator.template_fields) <= set(operator.template_fields), operator


def test_a_trainjob_is_shown_as_the_cluster_has_it():
    kept = {"name": "train-1", "namespace": "ml", "labels": {"team": "nlp"}}
    notes = {"note": "curl -H 'Authorization: Bearer abcdefgh12345678'", "trainjob.dev/run-key": '{"run": "a"}'}
    added = {"uid": "u", "resourceVersion": "7", "managedFields": [{"manager": "m"}]}
    copy = {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {**kept, **added, "annotations": {**notes, **copy}},
        "spec": {"trainer": {"numNodes": 2, "env": [{"name": "API_TOKEN", "value": "abc"}]}, "suspend": False},
        "status": {"conditions": []},
    }
    shown = yaml.safe_load(render_trainjob(job))
    assert list(shown) == ["apiVersion", "kind", "metadata", "spec"]
    assert "abcdefgh12345678" not in str(shown)
    annotations = shown["metadata"].pop("annotations")
    assert (set(annotations), annotations["trainjob.dev/run-key"]) == (set(notes), '{"run": "a"}')
    assert shown["metadata"] == kept
    assert shown["spec"]["trainer"] == {"numNodes": 2, "env": [{"name": "API_TOKEN", "value": "***"}]}


@pytest.mark.usefixtures("airflow_environment")
@pytest.mark.parametrize("deferrable", [True, False])
def test_a_step_is_converted_once_and_shown_as_it_was_created(cluster, unique, monkeypatch, deferrable):
    """Neither the wait nor the end of the task converts the step again."""
    calls = []

    def record(request, *arguments, **more):
        calls.append(request)
        return to_trainjob(request, *arguments, **more)

    monkeypatch.setattr(prepared_job, "to_trainjob", record)
    trainer = {"image": "busybox", "command": ["true"]}
    task, resumed = (TrainJobOperator(task_id="train", trainer=trainer, deferrable=deferrable) for _ in range(2))
    context = make_context(task, unique)
    try:
        result = task.execute(context)
        shown = task.rendered_trainjob
    except TaskDeferred as deferral:
        shown = deferral.kwargs["rendered_trainjob"]
        path, arguments = deferral.trigger.serialize()
        result = resume(resumed, context, path, arguments, **deferral.kwargs)
        assert resumed.rendered_trainjob == shown
    sent = cluster.get_trainjob(result["job"], "default")
    assert len(calls) == 1
    shown = yaml.safe_load(shown)
    assert shown["spec"] == sent["spec"]
    assert shown["metadata"]["annotations"].items() <= sent["metadata"]["annotations"].items()


def test_long_texts_are_cut_so_that_the_manifest_fits():
    manifest = {"spec": {"args": ["x" * 3000, "short"], "script": "one\ntwo\n"}, "last": "y" * 1500}
    text = dump_within(manifest, 4096)
    assert len(text) <= 4096
    assert yaml.safe_load(text)["spec"]["args"] == [f"{'x' * 2000}… (3,000 characters)", "short"]
    assert yaml.safe_load(dump_within(manifest, 100_000)) == manifest
    assert "script: |\n" in text
    assert yaml.safe_load(dump_within(manifest, 10))["last"].startswith("y" * 50)


def test_values_of_sensitive_variables_are_masked():
    env = [{"name": "API_TOKEN", "value": "abc"}, {"name": "RATE", "value": "0.1"}]
    reference = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}}
    assert mask_values({"env": [*env, reference], "n": 1}) == {
        "env": [{"name": "API_TOKEN", "value": "***"}, env[1], reference],
        "n": 1,
    }
