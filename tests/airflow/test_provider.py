"""What needs no cluster: imports, metadata, connections, and bad input refused when the DAG is parsed."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta

import pytest
from airflow.sdk import DAG

from trainjob import (
    CustomTrainerContainer,
    DataFormat,
    InvalidSpec,
    LoraConfig,
    TorchTuneConfig,
    TorchTuneInstructDataset,
)
from trainjob_airflow import (
    ExportModelOperator,
    FineTuneOperator,
    InitializeDatasetOperator,
    TrainJobOperator,
    TrainJobTrigger,
    Workspace,
)
from trainjob_airflow.hooks.trainjob import connection_from_extra

BANNED = {"kubernetes", "kubernetes_asyncio", "kfp", "torch", "starlette", "uvicorn", "huggingface_hub"}


def test_importing_the_operators_is_light():
    code = (
        "import sys, json, airflow.sdk, airflow.sdk.exceptions; before = set(sys.modules)\n"
        "from airflow.sdk import BaseOperator, BaseHook, Asset\n"
        "base = set(sys.modules)\n"
        "from trainjob_airflow import FineTuneOperator, TrainJobOperator, Workspace\n"
        "print(json.dumps(sorted(set(sys.modules) - base)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    new = json.loads(done.stdout.splitlines()[-1])
    assert not {module.partition(".")[0] for module in new} & BANNED
    assert not [module for module in new if module.startswith("airflow.providers")]
    assert len(new) <= 60, new


def test_provider_info_is_what_airflow_wants():
    from airflow.providers_manager import ProvidersManager

    info = ProvidersManager().providers["airflow-provider-trainjob"].data
    assert info["name"] == "Kubeflow Trainer"


QLORA = LoraConfig(quantize_base=True)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: FineTuneOperator(task_id="t", workspace="w", model="gpt-2"), ["model", "gpt-2", "llama3.2-1b"]),
        (
            lambda: FineTuneOperator(
                task_id="t", workspace="w", model="qwen2.5-1.5b", config=TorchTuneConfig(peft_config=QLORA)
            ),
            ["quantize_base", "qwen2.5-1.5b"],
        ),
        (
            lambda: FineTuneOperator(
                task_id="t",
                workspace="w",
                model="llama3.2-1b",
                config=TorchTuneConfig(num_nodes=2, peft_config=LoraConfig()),
            ),
            ["num_nodes", "2"],
        ),
        (
            lambda: InitializeDatasetOperator(task_id="t", workspace="w", storage_uri="tatsu-lab/alpaca"),
            ["storage_uri", "tatsu-lab/alpaca", "hf://tatsu-lab/alpaca"],
        ),
        (
            lambda: TrainJobOperator(
                task_id="t", trainer=CustomTrainerContainer(image="x", command=["y"], env={"PET_NNODES": "2"})
            ),
            ["env", "PET_NNODES"],
        ),
        (
            lambda: FineTuneOperator(
                task_id="t", workspace="w", model="llama3.2-1b", config={"overrides": ["optimizer=a=b"]}
            ),
            ["overrides", "optimizer=a=b"],
        ),
        (
            lambda: FineTuneOperator(task_id="t", workspace="w", model="llama3.2-1b", config={"epochs": -1}),
            ["epochs", "-1"],
        ),
        (
            lambda: ExportModelOperator(task_id="t", workspace="w", destination="ftp://models/x"),
            ["destination", "ftp://models/x", "s3://"],
        ),
        (lambda: TrainJobOperator(task_id="t", on_kill_action="explode"), ["on_kill_action", "explode", "delete"]),
        (lambda: Workspace(size="1Gi", keep="sometimes"), ["keep", "sometimes", "on_failure"]),
        (
            lambda: FineTuneOperator(
                task_id="t",
                workspace="w",
                model="llama3.2-1b",
                config=TorchTuneConfig(
                    dataset_preprocess_config=TorchTuneInstructDataset(
                        source=DataFormat.PARQUET, split="{{ params.split }}"
                    )
                ),
            ),
            ["template", "dict"],
        ),
    ],
)
def test_bad_input_is_refused_when_the_dag_is_parsed(make, words):
    with pytest.raises(InvalidSpec) as raised:
        make()
    for word in words:
        assert word in str(raised.value)


def test_a_secret_value_is_refused_and_not_shown():
    with pytest.raises(InvalidSpec) as raised:
        InitializeDatasetOperator(task_id="t", workspace="w", storage_uri="hf://a/b", secret="hf_AbCdEf123456")
    assert "secret" in str(raised.value)
    assert "hf_AbCdEf123456" not in str(raised.value)


def test_templates_are_checked_when_the_task_runs():
    operator = InitializeDatasetOperator(task_id="t", workspace="w", storage_uri="{{ params.uri }}")
    assert "storage_uri" in operator.template_fields


def test_a_dag_with_a_workspace_has_its_setup_and_teardown():
    with DAG("d") as dag, Workspace(size="1Gi") as workspace:
        FineTuneOperator(task_id="t", workspace=workspace, model="llama3.2-1b")
    assert dag.get_task("workspace_create").is_setup
    assert dag.get_task("workspace_delete").is_teardown
    assert dag.get_task("t").upstream_task_ids == {"workspace_create"}
    assert "t" in dag.get_task("workspace_delete").upstream_task_ids


def test_a_dag_survives_serialization():
    from airflow.serialization.serialized_objects import DagSerialization

    with DAG("d") as dag, Workspace(size="1Gi") as workspace:
        config = TorchTuneConfig(epochs=3, peft_config=LoraConfig(lora_rank=8))
        FineTuneOperator(task_id="t", workspace=workspace, model="llama3.2-1b", config=config)
        FineTuneOperator.partial(task_id="m", workspace=workspace, model="llama3.2-1b").expand(
            config=[{"epochs": 1}, {"epochs": 2}]
        )
    once, again = (json.dumps(DagSerialization.serialize_dag(dag), sort_keys=True) for _ in range(2))
    assert once == again
    assert "epochs=3" in once


def test_a_trigger_gives_back_every_argument():
    trigger = TrainJobTrigger(
        reference={"name": "n", "namespace": "ns", "uid": "u", "attempt": 2, "adopted": True},
        limits={"queued": 5.0, "max_restarts": None, "on_timeout": "keep"},
        deadline=1234.5,
        kubernetes_conn_id="k",
        on_kill_action="keep",
    )
    path, arguments = trigger.serialize()
    assert path == "trainjob_airflow.triggers.trainjob.TrainJobTrigger"
    assert TrainJobTrigger(**json.loads(json.dumps(arguments))).serialize() == (path, arguments)


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({}, {}),
        ({"kube_config_path": "/k", "cluster_context": "c"}, {"kubeconfig": "/k", "context": "c"}),
        ({"extra__kubernetes__in_cluster": True, "namespace": "ml"}, {"in_cluster": True, "namespace": "ml"}),
        ({"kube_config": {"a": 1}}, {"kubeconfig_json": '{"a": 1}'}),
        (
            {"kube_config": '{"a": 1}', "disable_verify_ssl": "True"},
            {"kubeconfig_json": '{"a": 1}', "verify_tls": False},
        ),
    ],
)
def test_connection_fields_mean_what_they_mean_to_the_kubernetes_provider(extra, expected):
    assert connection_from_extra(extra).to_dict() == expected


def test_airflows_own_queue_stays_airflows():
    trainer = CustomTrainerContainer(image="x", command=["y"])
    operator = TrainJobOperator(task_id="t", trainer=trainer, queue="celery-queue", queue_name="gpu-team")
    assert operator.queue == "celery-queue"
    assert operator.queue_name == "gpu-team"


def test_durations_and_timeouts_are_taken():
    operator = TrainJobOperator(
        task_id="t",
        trainer=CustomTrainerContainer(image="x", command=["y"]),
        queue_timeout=timedelta(minutes=5),
        execution_timeout=timedelta(hours=1),
    )
    assert operator.queue_timeout == timedelta(minutes=5)
