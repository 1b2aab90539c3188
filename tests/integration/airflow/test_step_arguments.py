"""Tests of the arguments that all step operators share, and of their templates."""

from __future__ import annotations

import json
from datetime import timedelta
from types import SimpleNamespace

import pytest

from tests.integration.airflow.airflow_runs import run_dag
from trainjob.errors import InvalidSpec
from trainjob.manifest import labels
from trainjob.options import ActiveDeadlineSeconds, Labels, TrainerCommand
from trainjob_airflow import (
    ExportModelOperator,
    FineTuneOperator,
    InitializeDatasetOperator,
    InitializeModelOperator,
    TrainJobOperator,
)

pytestmark = pytest.mark.usefixtures("airflow_environment")

OPERATORS = {
    "train": lambda **more: TrainJobOperator(task_id="t", trainer={"image": "busybox"}, **more),
    "fine-tune": lambda **more: FineTuneOperator(
        task_id="t", model="llama3.2-1b", config={"framework": "torchtune"}, workspace="w", **more
    ),
    "dataset": lambda **more: InitializeDatasetOperator(task_id="t", storage_uri="hf://a/b", workspace="w", **more),
    "model": lambda **more: InitializeModelOperator(task_id="t", storage_uri="hf://a/b", workspace="w", **more),
    "export": lambda **more: ExportModelOperator(task_id="t", destination="s3://a/b", workspace="w", **more),
}
OPERATOR = pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)


@OPERATOR
def test_templates_in_shared_arguments_are_rendered(operator):
    task = operator(
        name="{{ params.name }}",
        labels={"team": "{{ params.team }}"},
        annotations={"ticket": "{{ params.team }}-1"},
        deadline="{{ params.deadline }}",
    )
    task.render_template_fields({"params": {"name": "tuning", "team": "nlp", "deadline": "PT6H"}})
    step = task._build_step("w")
    assert (step.name, step.labels, step.annotations) == ("tuning", {"team": "nlp"}, {"ticket": "nlp-1"})
    assert step.deadline == timedelta(hours=6)


def test_the_arguments_of_the_sdk_are_those_of_the_operator():
    given = [Labels({"team": "nlp"}), ActiveDeadlineSeconds(60), TrainerCommand(["run"])]
    task = TrainJobOperator(task_id="t", runtime="own", trainer={"image": "busybox"}, options=given)
    task.render_template_fields({"params": {}})
    step = task._build_step("w")
    assert (step.labels, step.deadline, step.trainer.command) == ({"team": "nlp"}, timedelta(minutes=1), ("run",))
    with pytest.raises(InvalidSpec, match=r"options\[0\]\.deadline"):
        TrainJobOperator(task_id="t", trainer={}, deadline="6h", options=[ActiveDeadlineSeconds(60)])


@OPERATOR
def test_fields_of_the_api_are_arguments_of_each_operator(operator):
    patch = {"manager": "{{ params.manager }}", "trainingRuntimeSpec": {}}
    task = operator(managed_by="kueue.x-k8s.io/multikueue", suspend="{{ params.suspend }}", runtime_patches=[patch])
    task.render_template_fields({"params": {"manager": "example.org/a", "suspend": True}})
    step = task._build_step("w")
    assert (step.managed_by, step.suspend) == ("kueue.x-k8s.io/multikueue", True)
    assert step.runtime_patches == ({"manager": "example.org/a", "trainingRuntimeSpec": {}},)


@pytest.mark.parametrize("kind", ["train", "fine-tune"])
def test_a_template_in_max_restarts_is_rendered(kind):
    task = OPERATORS[kind](max_restarts="{{ params.restarts }}")
    task.render_template_fields({"params": {"restarts": 2}})
    assert task._build_step("w").max_restarts == 2


@pytest.mark.parametrize("kind", ["dataset", "model", "export"])
def test_a_template_in_resources_is_rendered(kind):
    task = OPERATORS[kind](resources={"memory": "{{ params.memory }}"})
    task.render_template_fields({"params": {"memory": "4Gi"}})
    assert task._build_step("w").resources == {"memory": "4Gi"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": {"team": "a b"}}, r"labels\.team cannot be 'a b'"),
        ({"name": "No Name"}, "name cannot be 'No Name'"),
        ({"deadline": "6 hours"}, "deadline cannot be '6 hours'"),
        ({"queue_timeout": "soon"}, "queue_timeout cannot be 'soon'"),
    ],
)
@OPERATOR
def test_a_wrong_argument_is_refused_when_the_dag_is_parsed(operator, arguments, message):
    with pytest.raises(InvalidSpec, match=message):
        operator(**arguments)


@OPERATOR
def test_a_duration_is_given_in_any_form(operator):
    given = operator(queue_timeout="30m", start_timeout=600, deadline="6h", ttl_after_success="P7D")
    step = given._build_step("w")
    assert (step.queue_timeout, step.start_timeout) == (timedelta(minutes=30), timedelta(minutes=10))
    assert (step.deadline, step.ttl_after_success) == (timedelta(hours=6), timedelta(days=7))


def test_arguments_that_a_manifest_has_itself_are_refused_with_it():
    manifest = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}
    for name, value in {"labels": {"a": "b"}, "annotations": {"a": "b"}, "name": "n", "deadline": "PT1H"}.items():
        with pytest.raises(InvalidSpec, match=f"manifest cannot be given with {name}"):
            TrainJobOperator(task_id="t", manifest=manifest, **{name: value})


@pytest.mark.slow
def test_name_and_labels_of_a_dag_reach_trainjob_and_pods(airflow, cluster):
    printed, _, state = run_dag(airflow, "labelled")
    assert state == "success", printed[-6000:]
    [job] = cluster.list_trainjobs("default", "example.org/team=nlp")
    assert job["metadata"]["name"].startswith("tuning-")
    key = json.loads(job["metadata"]["annotations"][labels.RUN_KEY])
    assert job["metadata"]["annotations"]["example.org/run"] == key["run"]
    [pod] = cluster.list_pods(job["metadata"]["name"], "default")
    assert pod["metadata"]["labels"]["example.org/team"] == "nlp"
    assert pod["metadata"]["annotations"]["example.org/run"] == key["run"]


@OPERATOR
def test_every_setting_of_a_wait_may_have_a_template(operator):
    settings = {
        "queue_timeout": "{{ params.wait }}",
        "interruption_retries": "{{ params.retries }}",
        "on_kill": "{{ params.action }}",
        "on_failure": "{{ params.action }}",
        "ttl_after_failure": "{{ params.wait }}",
    }
    task = operator(**settings)
    task.render_template_fields({"params": {"wait": "8h", "retries": 5, "action": "keep"}})
    step = task._build_step("w")
    assert (step.queue_timeout, step.ttl_after_failure) == (timedelta(hours=8), timedelta(hours=8))
    assert (step.interruption_retries, step.on_kill, step.on_failure) == (5, "keep", "keep")


@pytest.mark.parametrize(
    ("arguments", "warns"),
    [
        ({"queue": "gpu"}, True),
        ({"queue": "gpu", "queue_name": "gpu-team"}, False),
        ({"queue": "default"}, False),
        ({}, False),
    ],
)
def test_a_queue_of_airflow_that_may_be_meant_for_kueue_is_reported(arguments, warns, monkeypatch):
    lines = []
    log = SimpleNamespace(warning=lambda text, *values: lines.append(text % values))
    monkeypatch.setattr(TrainJobOperator, "_run_attempts", lambda *_: {})
    monkeypatch.setattr(TrainJobOperator, "log", log)
    OPERATORS["train"](**arguments).execute({"ti": None})
    assert any(line.startswith("queue='gpu' selects the Airflow workers") for line in lines) is warns
