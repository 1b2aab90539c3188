"""Tests without a cluster: imports, metadata, connections, and invalid arguments when the DAG is parsed."""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path

import pytest
from airflow.sdk import DAG

import trainjob_airflow
from tests.support.airflow_versions import needs_connection_form
from trainjob import (
    CustomTrainer,
    CustomTrainerContainer,
    DataFormat,
    InvalidSpec,
    LoraConfig,
    TorchTuneConfig,
    TorchTuneInstructDataset,
    TRLConfig,
    Volume,
)
from trainjob.lifecycle import KillAction, Limits
from trainjob.manifest import build_trainjob, labels
from trainjob_airflow import (
    ExportModelOperator,
    FineTuneOperator,
    InitializeDatasetOperator,
    InitializeModelOperator,
    TrainJobOperator,
    TrainJobTrigger,
    Workspace,
)
from trainjob_airflow.hooks.trainjob import TrainJobHook, connection_from_extra
from trainjob_airflow.links.trainjob import TEMPLATE_LINKS
from trainjob_airflow.operators.base import StepOperator
from trainjob_airflow.provider_info import get_provider_info

TRAINJOB = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}
BANNED = {"kubernetes", "kubernetes_asyncio", "kfp", "torch", "starlette", "uvicorn", "huggingface_hub"}


def test_the_operators_import_few_modules():
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


def test_provider_info_matches_airflows_schema():
    import airflow
    import jsonschema
    from airflow.providers_manager import ProvidersManager

    info = get_provider_info()
    assert ProvidersManager().providers["airflow-provider-trainjob"].data.items() >= info.items()
    schema = json.loads(Path(airflow.__file__).with_name("provider_info.schema.json").read_text())
    jsonschema.validate(info, schema)
    assert set(info) <= set(schema["properties"])


def test_dir_and_version_of_the_package():
    assert set(dir(trainjob_airflow)) == {*trainjob_airflow.__all__, "__version__"}
    assert trainjob_airflow.__version__ == version(get_provider_info()["package-name"])


def test_provider_info_lists_all_public_modules_and_classes():
    info = get_provider_info()
    for kind in ("operators", "hooks", "sensors", "triggers"):
        named = {module for entry in info[kind] for module in entry["python-modules"]}
        folder = Path(trainjob_airflow.__file__).parent / kind
        public = {
            f"trainjob_airflow.{kind}.{path.stem}"
            for path in folder.glob("*.py")
            if f"{kind}.{path.stem}" in trainjob_airflow._MODULES.values()
        }
        assert named == public
    classes = [
        *info["extra-links"],
        *(entry["hook-class-name"] for entry in info["connection-types"]),
        *(entry["class-name"] for entry in info["task-decorators"]),
        *(entry["plugin-class"] for entry in info.get("plugins", ())),
    ]
    for path in classes:
        module, _, name = path.rpartition(".")
        assert hasattr(importlib.import_module(module), name), path
    links = {f"{type(link).__module__}.{type(link).__name__}" for link in TrainJobOperator.operator_extra_links}
    assert links == set(info["extra-links"])


@needs_connection_form
@pytest.mark.usefixtures("airflow_environment")
def test_the_connection_form_has_the_fields_of_hook_and_links():
    from airflow.providers_manager import ProvidersManager

    from tests.support.airflow_versions import load_hooks

    manager = ProvidersManager()
    hook = load_hooks()["trainjob"]
    assert hook is not None
    assert (hook.hook_class_name, hook.connection_id_attribute_name, hook.connection_testable) == (
        "trainjob_airflow.hooks.trainjob.TrainJobHook",
        "kubernetes_conn_id",
        True,
    )
    assert "extra" in manager.field_behaviours["trainjob"]["hidden_fields"]
    fields = {
        field.removeprefix("extra__trainjob__") for field in manager.connection_form_widgets if "trainjob" in field
    }
    kubernetes_fields = {field.removeprefix("extra__kubernetes__") for field in manager.connection_form_widgets}
    assert {field for field in fields if not field.startswith("trainjob_")} <= kubernetes_fields
    assert {field for field in fields if field.startswith("trainjob_")} == {link.field for link in TEMPLATE_LINKS}
    values = {"in_cluster": True, "cluster_context": "c", "namespace": "n", "disable_verify_ssl": True}
    assert set(connection_from_extra(values).to_dict()) == {"in_cluster", "context", "namespace", "verify_tls"}
    assert set(values) | {"kube_config_path", "kube_config"} == {f for f in fields if not f.startswith("trainjob_")}


@pytest.mark.parametrize(
    ("extra", "works", "words"),
    [
        (lambda laptop: {"kube_config_path": str(laptop.kubeconfig)}, True, "has Kubeflow Trainer, with "),
        (lambda _: {"kube_config_path": "/nowhere"}, False, "the kubeconfig /nowhere can't be used"),
        (lambda _: {"kube_config": "{", "namespace": "n"}, False, "the kubeconfig of this connection can't be used"),
        (lambda _: {"kube_config_path": "/a", "in_cluster": True}, False, "each of them selects a cluster"),
    ],
)
@pytest.mark.usefixtures("airflow_environment")
def test_the_test_of_a_connection_returns_one_sentence(monkeypatch, laptop, extra, works, words):
    text = json.dumps({"conn_type": "trainjob", "extra": extra(laptop)})
    monkeypatch.setenv("AIRFLOW_CONN_CANDIDATE", text)
    worked, sentence = TrainJobHook("candidate").test_connection()
    assert worked is works, sentence
    assert words in sentence
    assert "\n" not in sentence


@pytest.mark.usefixtures("airflow_environment")
def test_the_test_of_a_missing_connection_fails():
    worked, sentence = TrainJobHook("nobody").test_connection()
    assert not worked
    assert "Airflow has no connection 'nobody'" in sentence


QLORA = LoraConfig(quantize_base=True)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: FineTuneOperator(task_id="t", workspace="w", model="gpt-2", config={"framework": "torchtune"}),
            ["model", "gpt-2", "llama3.2-1b"],
        ),
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
                task_id="t",
                workspace="w",
                model="llama3.2-1b",
                config={"framework": "torchtune", "overrides": ["optimizer=a=b"]},
            ),
            ["overrides", "optimizer=a=b"],
        ),
        (
            lambda: FineTuneOperator(
                task_id="t", workspace="w", model="llama3.2-1b", config={"framework": "torchtune", "epochs": -1}
            ),
            ["epochs", "-1"],
        ),
        (
            lambda: ExportModelOperator(task_id="t", workspace="w", destination="ftp://models/x"),
            ["destination", "ftp://models/x", "s3://"],
        ),
        (
            lambda: ExportModelOperator(
                task_id="t",
                workspace="w",
                destination="/workspace/export",
                volumes=[{"name": "keys", "source": {"secret": {"secretName": "s"}}, "mount_path": "keys"}],
            ),
            ["volumes[0].mount_path", "'keys'", "absolute"],
        ),
        (lambda: TrainJobOperator(task_id="t", on_kill="explode"), ["on_kill", "explode", "delete"]),
        (lambda: TrainJobOperator(task_id="t", on_failure="x"), ["on_failure", "x", "suspend"]),
        (lambda: TrainJobOperator(task_id="t", on_kill="suspend", queue_name="gpu"), ["suspend", "queue gpu"]),
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
def test_invalid_arguments_are_refused_when_the_dag_is_parsed(make, words):
    with pytest.raises(InvalidSpec) as raised:
        make()
    for word in words:
        assert word in str(raised.value)


def test_a_secret_value_is_refused_and_not_shown():
    with pytest.raises(InvalidSpec) as raised:
        InitializeDatasetOperator(task_id="t", workspace="w", storage_uri="hf://a/b", secret="hf_AbCdEf123456")
    assert "secret" in str(raised.value)
    assert "hf_AbCdEf123456" not in str(raised.value)


def test_a_template_is_not_checked_when_the_dag_is_parsed():
    operator = InitializeDatasetOperator(task_id="t", workspace="w", storage_uri="{{ params.uri }}")
    assert "storage_uri" in operator.template_fields


def test_a_workspace_adds_setup_and_teardown_tasks():
    with DAG("d") as dag, Workspace(size="1Gi") as workspace:
        FineTuneOperator(task_id="t", workspace=workspace, model="llama3.2-1b", config={"framework": "torchtune"})
    assert dag.get_task("workspace_create").is_setup
    assert dag.get_task("workspace_delete").is_teardown
    assert dag.get_task("t").upstream_task_ids == {"workspace_create"}
    assert "t" in dag.get_task("workspace_delete").upstream_task_ids


def test_a_dag_is_serialized_in_the_same_way_each_time():
    from tests.support.airflow_versions import DagSerialization

    with DAG("d") as dag, Workspace(size="1Gi") as workspace:
        config = TorchTuneConfig(epochs=3, peft_config=LoraConfig(lora_rank=8))
        volumes = [Volume(name="scratch", source={"emptyDir": {}}, mount_path="/scratch")]
        FineTuneOperator(task_id="t", workspace=workspace, model="llama3.2-1b", config=config, volumes=volumes)
        configs = [{"framework": "torchtune", "epochs": epochs} for epochs in (1, 2)]
        FineTuneOperator.partial(task_id="m", workspace=workspace, model="llama3.2-1b").expand(config=configs)
    first, second = (json.dumps(DagSerialization.serialize_dag(dag), sort_keys=True) for _ in range(2))
    assert first == second
    assert "epochs=3" in first
    assert "mount_path='/scratch'" in first


def short_answers(completions, **_):
    """Return a reward for each answer: the shorter, the higher."""
    return [-float(len(completion)) for completion in completions]


def test_a_dag_with_functions_is_serialized_without_their_addresses():
    """An address in memory would make each parse of the file a new version of the DAG."""
    from tests.support.airflow_versions import DagSerialization

    config = TRLConfig(method="grpo", reward_functions=(short_answers, "think_format_reward"))
    with DAG("d") as dag:
        FineTuneOperator(task_id="t", workspace="w", model="m", config=config)
        FineTuneOperator.partial(task_id="m", workspace="w", model="m").expand(config=[config])
        TrainJobOperator(task_id="f", trainer=CustomTrainer(func=short_answers, func_args={"completions": []}))
    text = json.dumps(DagSerialization.serialize_dag(dag))
    assert " at 0x" not in text
    assert text.count("reward_functions=('short_answers', 'think_format_reward')") == 2
    assert "func='short_answers'" in text


def test_a_dict_with_templates_becomes_a_trl_configuration():
    config = {
        "framework": "trl",
        "method": "grpo",
        "max_steps": "{{ params.steps }}",
        "arguments": {"beta": "{{ params.beta }}"},
        "reward_functions": [short_answers],
    }
    with DAG("d", render_template_as_native_obj=True):
        operator = FineTuneOperator(task_id="t", workspace="w", model="m", config=config)
    operator.render_template_fields({"params": {"steps": 7, "beta": 0.1}, "ti": None})
    expected = TRLConfig(method="grpo", max_steps=7, reward_functions=(short_answers,), arguments={"beta": 0.1})
    assert operator._build_step("w").config == expected


@pytest.mark.parametrize("manifest", [None, {**TRAINJOB, "spec": {"runtimeRef": {"name": "torch-distributed"}}}])
def test_retention_and_actions_are_in_the_annotations_and_the_limits(manifest):
    operator = TrainJobOperator(
        task_id="t",
        manifest=manifest,
        on_kill="keep",
        on_failure="suspend",
        ttl_after_success=timedelta(days=2),
        ttl_after_failure=timedelta(days=7),
        queue_timeout="1h",
    )
    step = operator._build_step("w")
    annotations = build_trainjob(step, name="n", namespace="ns")["metadata"]["annotations"]
    assert annotations == {labels.TTL_AFTER_SUCCESS: "2d", labels.TTL_AFTER_FAILURE: "7d", labels.ON_KILL: "keep"}
    limits = Limits.of(step)
    assert (limits.queued, limits.starting, limits.max_restarts) == (timedelta(hours=1), None, 0)
    assert (limits.on_timeout, limits.on_failure) == (KillAction.KEEP, KillAction.SUSPEND)


def test_a_trigger_serializes_every_argument():
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
        ({"kube_config": {"a": 1}}, {"kubeconfig_text": '{"a": 1}'}),
        ({"kube_config": "a: 1\n"}, {"kubeconfig_text": "a: 1\n"}),
        (
            {"kube_config": '{"a": 1}', "disable_verify_ssl": "True"},
            {"kubeconfig_text": '{"a": 1}', "verify_tls": False},
        ),
    ],
)
def test_connection_fields_have_the_same_meaning_as_in_the_kubernetes_provider(extra, expected):
    assert connection_from_extra(extra).to_dict() == expected


def test_queue_selects_airflows_workers_and_queue_name_a_kueue_queue():
    trainer = CustomTrainerContainer(image="x", command=["y"])
    operator = TrainJobOperator(task_id="t", trainer=trainer, queue="celery-queue", queue_name="gpu-team")
    assert operator.queue == "celery-queue"
    assert operator.queue_name == "gpu-team"


def test_timeouts_are_accepted():
    operator = TrainJobOperator(
        task_id="t",
        trainer=CustomTrainerContainer(image="x", command=["y"]),
        queue_timeout=timedelta(minutes=5),
        execution_timeout=timedelta(hours=1),
    )
    assert operator.queue_timeout == timedelta(minutes=5)


@pytest.mark.parametrize(
    "operator",
    [ExportModelOperator, FineTuneOperator, InitializeDatasetOperator, InitializeModelOperator, TrainJobOperator],
    ids=lambda operator: operator.__name__,
)
def test_an_operator_has_an_argument_for_each_field_of_its_step(operator):
    arguments = set(inspect.signature(operator.__init__).parameters)
    # `queue` is an argument of Airflow for its workers.
    arguments |= set(inspect.signature(StepOperator.__init__).parameters)
    renamed = {"queue": "queue_name"}
    assert {renamed.get(name, name) for name in operator.step_type.model_fields} <= arguments
