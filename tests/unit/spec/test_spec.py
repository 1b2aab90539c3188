"""Invalid requests are refused when they are created; errors name the field, the value and the rule."""
# mypy: disable-error-code="call-arg"

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob import (
    BuiltinTrainer,
    CustomTrainer,
    CustomTrainerContainer,
    ExportModel,
    FineTune,
    HuggingFaceDatasetInitializer,
    InitializeDataset,
    InitializeModel,
    Initializer,
    InvalidSpec,
    LoraConfig,
    S3ModelInitializer,
    SecretKeyReference,
    SecretReference,
    TorchTuneConfig,
    TorchTuneInstructDataset,
    TrainJob,
    WorkspaceVolume,
)
from trainjob.spec.durations import to_duration


def fine_tune(model="llama3.2-1b", **config):
    return FineTune(model=model, workspace="w", config=TorchTuneConfig(**config))


def container(**fields):
    return TrainJob(trainer=CustomTrainerContainer(image="x", command=["y"], **fields))


@pytest.mark.parametrize(
    ("make", "field_name", "value", "allowed"),
    [
        (lambda: fine_tune("gpt-2"), "model", "gpt-2", "llama3.2-1b, llama3.2-3b, llama3.3-70b, qwen2.5-1.5b"),
        (
            lambda: fine_tune("qwen2.5-1.5b", peft_config=LoraConfig(quantize_base=True)),
            "config.peft_config.quantize_base",
            "True",
            "no QLoRA recipe for qwen2.5-1.5b",
        ),
        (
            lambda: fine_tune(peft_config=LoraConfig(quantize_base=True), resources_per_node={"gpu": 2}),
            "config.peft_config.quantize_base",
            "True",
            "one process on one GPU",
        ),
        (lambda: fine_tune(num_nodes=2, peft_config=LoraConfig()), "config.num_nodes", "2", "LoRA runs on one node"),
        (lambda: fine_tune(num_nodes=2), "config.num_nodes", "2", "several nodes: llama3.3-70b"),
        (
            lambda: InitializeDataset(workspace="w", storage_uri="tatsu-lab/alpaca"),
            "storage_uri",
            "tatsu-lab/alpaca",
            "did you mean hf://tatsu-lab/alpaca?",
        ),
        (
            lambda: InitializeModel(workspace="w", storage_uri="azure://bucket/model"),
            "storage_uri",
            "azure://bucket/model",
            "allowed are hf://… or s3://… or gs://…",
        ),
        (lambda: InitializeModel(workspace="w", storage_uri="hf://"), "storage_uri", "hf://", "nothing follows"),
        (
            lambda: Initializer(dataset={"storage_uri": "hf://a/b", "revision": "v1"}),
            "dataset.revision",
            "v1",
            "run InitializeDataset or InitializeModel with a workspace",
        ),
        (lambda: container(env={"PET_NNODES": "2"}), "env.PET_NNODES", "2", "reserved"),
        (lambda: fine_tune(overrides=["optimizer=a=b"]), "overrides", "optimizer=a=b", "exactly one '='"),
        (lambda: fine_tune(overrides=["packed"]), "overrides", "packed", "exactly one '='"),
        (lambda: fine_tune(overrides=["output_dir=/x"]), "overrides", "output_dir=/x", "output_dir"),
        (lambda: TrainJob(name="a" * 40), "name", "a" * 40, "at most 24 characters"),
        (lambda: InitializeModel(name="B_ad", workspace="w", storage_uri="hf://a/b"), "name", "B_ad", "lower case"),
        (lambda: fine_tune(epochs=-1), "epochs", "-1", "at least 1"),
        (lambda: fine_tune(batch_size=0), "batch_size", "0", "at least 1"),
        (lambda: fine_tune(learning_rate=0), "learning_rate", "0", "greater than 0"),
        (lambda: LoraConfig(lora_rank=0), "lora_rank", "0", "at least 1"),
        (lambda: LoraConfig(lora_attn_modules=["w_proj"]), "lora_attn_modules", "w_proj", "q_proj"),
        (lambda: container(num_nodes=0), "num_nodes", "0", "a number of nodes from 1, or a range"),
        (lambda: container(env={f"V{i}": "" for i in range(129)}), "env", "129 variables", "at most 128"),
        (lambda: container(resources_per_node={"gpu": "many"}), "resources_per_node.gpu", "many", "quantity"),
        (lambda: TrainJob(deadline=timedelta(milliseconds=10)), "deadline", "0.01 s", "at least one second"),
        (lambda: CustomTrainerContainer(image="x", command=[]), "command", "()", "name a program"),
        (lambda: WorkspaceVolume(claim="Not A Name"), "claim", "Not A Name", "PersistentVolumeClaim"),
        (
            lambda: TrainJob(trainer=BuiltinTrainer(config=TorchTuneConfig())),
            "runtime",
            "torch-distributed",
            "torchtune-llama3.2-1b",
        ),
        (
            lambda: TrainJob(initializer=Initializer(dataset="hf://a/b")),
            "initializer",
            "Initializer",
            "no initializer Jobs",
        ),
        (
            lambda: FineTune(model="llama3.2-1b", config={"framework": "torchtune"}),
            "workspace",
            "is required",
            "dataset and model_initializer",
        ),
        (
            lambda: FineTune(model="llama3.2-1b", config={"framework": "torchtune"}, workspace="w", dataset="hf://a/b"),
            "workspace",
            "w",
            "not both",
        ),
        (
            lambda: FineTune(model="llama3.3-70b", config={"framework": "torchtune"}, dataset="hf://a/b"),
            "runtime",
            "is required",
            "ships no runtime",
        ),
        (
            lambda: FineTune(
                model="llama3.2-1b", config={"framework": "torchtune"}, dataset="hf://a/b", queue="gpu-team"
            ),
            "queue",
            "gpu-team",
            "use a workspace",
        ),
        (
            lambda: TrainJob(
                trainer=BuiltinTrainer(config=TorchTuneConfig()), runtime="torchtune-qwen2.5-1.5b", queue="gpu-team"
            ),
            "queue",
            "gpu-team",
            "it would wait forever",
        ),
        (lambda: TrainJob(queue={"name": "", "priority_class": "high"}), "queue.name", "''", "at least 1 character"),
        (
            lambda: TrainJob(managed_by="kueue"),
            "managed_by",
            "kueue",
            "'trainer.kubeflow.org/trainjob-controller' or 'kueue.x-k8s.io/multikueue'",
        ),
        (
            lambda: FineTune(model="llama3.2-1b", config={"framework": "torchtune"}, workspace="w", output_path="/etc"),
            "output_path",
            "/etc",
            "it must be a path below /workspace/output",
        ),
        (
            lambda: FineTune(
                model="llama3.2-1b", config={"framework": "torchtune"}, workspace="w", dataset_path="../etc"
            ),
            "dataset_path",
            "../etc",
            "below /workspace/dataset",
        ),
        (
            lambda: ExportModel(workspace="w", destination="ftp://x/y"),
            "destination",
            "ftp://x/y",
            "hf://… or s3://… or gs://… or az://…",
        ),
        (lambda: ExportModel(workspace="w", destination="/tmp/x"), "destination", "/tmp/x", "below /workspace"),
        (
            lambda: ExportModel(workspace="w", destination="/workspace/model"),
            "destination",
            "/workspace/model",
            "another step",
        ),
        (lambda: TorchTuneConfig(epoch=3), "epoch", "'epoch'", "did you mean epochs?"),
        (lambda: InitializeModel(workspace="w"), "storage_uri", "", "required"),
        (
            lambda: TorchTuneInstructDataset(column_map={"prompt": "q"}),
            "column_map.prompt",
            "q",
            "input and output",
        ),
        (lambda: TorchTuneInstructDataset(new_system_prompt="a=b"), "new_system_prompt", "a=b", "'='"),
    ],
)
def test_refused(make, field_name, value, allowed):
    with pytest.raises(InvalidSpec) as raised:
        make()
    text = str(raised.value)
    assert field_name in text
    assert value in text
    assert allowed in text


SECRET = "hf_AbCdEfGh0123"


@pytest.mark.parametrize(
    "make",
    [
        lambda: InitializeDataset(workspace="w", storage_uri="hf://a/b", secret=SECRET),
        lambda: InitializeDataset(workspace="w", storage_uri="hf://a/b", access_token=SECRET),
        lambda: HuggingFaceDatasetInitializer(storage_uri="hf://a/b", access_token=SECRET),
        lambda: S3ModelInitializer(storage_uri="s3://a/b", secret_access_key=SECRET),
        lambda: InitializeModel(workspace="w", storage_uri=f"s3://user:{SECRET}@bucket/x"),
        lambda: ExportModel(workspace="w", destination="s3://a/b", endpoint=f"http://user:{SECRET}@host"),
        lambda: container(env={"HF_TOKEN": SECRET}),
        lambda: container(env={"AWS_SECRET_ACCESS_KEY": SECRET}),
        lambda: container(env={"WANDB_API_KEY": SECRET}),
        lambda: SecretKeyReference(name=SECRET, key="k"),
        lambda: SecretReference(name=SECRET),
    ],
)
def test_a_secret_value_is_refused_and_never_shown(make):
    with pytest.raises(InvalidSpec) as raised:
        make()
    assert "***" in str(raised.value)
    assert SECRET not in str(raised.value)


def test_an_error_lists_every_broken_rule():
    with pytest.raises(InvalidSpec) as raised:
        FineTune(
            model="llama3.2-1b",
            workspace="w",
            config={"framework": "torchtune", "epochs": 0, "batch_size": -2, "bogus": 1},
        )
    assert {problem.field for problem in raised.value.problems} == {
        "config.epochs",
        "config.batch_size",
        "config.bogus",
    }


def test_plain_strings_stand_for_names():
    step = InitializeModel(storage_uri="hf://a/b", workspace="claim", queue="gpu-team", secret="hf")
    assert (step.workspace.claim, step.queue.name, step.secret.name) == ("claim", "gpu-team", "hf")
    assert FineTune(model="llama3_2/1B", config={"framework": "torchtune"}, workspace="w").model == "llama3.2-1b"


# -- look-alikes of the Kubeflow SDK's dataclasses ------------------------------------------------------------------


class SdkDataType(Enum):
    BF16 = "bf16"


@dataclass
class SdkLora:
    apply_lora_to_mlp: bool | None = None
    apply_lora_to_output: bool | None = None
    lora_attn_modules: list = field(default_factory=lambda: ["q_proj", "v_proj"])
    lora_rank: int | None = None
    lora_alpha: int | None = None
    lora_dropout: float | None = None
    quantize_base: bool | None = None
    use_dora: bool | None = None


@dataclass
class SdkTorchTuneConfig:
    dtype: SdkDataType | None = None
    batch_size: int | None = None
    epochs: int | None = None
    loss: object = None
    num_nodes: int | None = None
    peft_config: SdkLora | None = None
    dataset_preprocess_config: object = None
    resources_per_node: dict | None = None


@dataclass
class SdkHuggingFace:
    storage_uri: str
    ignore_patterns: list | None = None
    access_token: str | None = None


@dataclass
class SdkBuiltin:
    config: SdkTorchTuneConfig


def test_sdk_objects_are_accepted():
    config = SdkTorchTuneConfig(dtype=SdkDataType.BF16, epochs=2, peft_config=SdkLora(lora_rank=8))
    job = TrainJob(
        trainer=SdkBuiltin(config),
        runtime="torchtune-llama3.2-1b",
        initializer=Initializer(dataset=SdkHuggingFace("hf://a/b", ["*.md"])),
    )
    assert isinstance(job.trainer, BuiltinTrainer)
    found = job.trainer.config
    assert isinstance(found, TorchTuneConfig)
    assert (found.peft_config.lora_attn_modules, found.dtype.value) == (("q_proj", "v_proj"), "bf16")
    assert job.initializer.dataset.ignore_patterns == ("*.md",)


def test_sdk_objects_with_credentials_are_refused():
    with pytest.raises(InvalidSpec, match="access_token"):
        Initializer(dataset=SdkHuggingFace("hf://a/b", access_token=SECRET))


@given(st.text(max_size=30))
def test_any_storage_uri_is_accepted_or_refused_with_invalid_spec(text):
    try:
        step = InitializeDataset(workspace="w", storage_uri=text)
    except InvalidSpec as error:
        assert error.problems[0].field == "storage_uri"
    else:
        assert step.storage_uri.partition("://")[0] in ("hf", "s3")


def test_a_function_is_stored_unchanged():
    def train(rate):
        print(rate)

    assert TrainJob(trainer=CustomTrainer(func=train)).trainer.func is train


SIX_HOURS = [timedelta(hours=6), 21600, 21600.0, "21600", "6h", "360m", "PT6H", "PT5H60M", "P0DT6H"]


@pytest.mark.parametrize("duration", SIX_HOURS)
def test_a_duration_has_one_of_several_forms(duration):
    fields = ("deadline", "ttl_after_success", "ttl_after_failure")
    job = TrainJob(**dict.fromkeys(fields, duration))
    assert [getattr(job, field) for field in fields] == [timedelta(hours=6)] * 3
    trainer = container(num_nodes=(2, 4), shrink_after=duration).trainer
    assert trainer.shrink_after == timedelta(hours=6)


@pytest.mark.parametrize(
    "duration", ["", "P", "PT", "P1M", "1h30m", "-PT6H", True, float("nan"), float("inf"), 1e300, None]
)
def test_what_is_no_duration_is_refused(duration):
    with pytest.raises(InvalidSpec):
        to_duration(duration)
