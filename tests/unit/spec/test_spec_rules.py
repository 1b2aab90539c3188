"""Rules found with a real Trainer 2.3: requests that it refuses, or accepts and then never runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob import (
    BuiltinTrainer,
    CustomTrainer,
    CustomTrainerContainer,
    ExportModel,
    FineTune,
    InitializeDataset,
    InitializeModel,
    Initializer,
    InvalidSpec,
    LoraConfig,
    SecretKeyReference,
    SecretReference,
    TorchTuneConfig,
    TrainJob,
)
from trainjob.errors import ProblemKind
from trainjob.spec.resources import count_gpus

QLORA = LoraConfig(quantize_base=True)
SECRET = "hf_AbCdEfGh0123"


def container(**fields):
    return CustomTrainerContainer(**{"image": "x", "command": ["y"], **fields})


def fine_tune(model="llama3.2-1b", **config):
    return FineTune(model=model, workspace="w", config=TorchTuneConfig(**config))


def builtin_fine_tune(model="llama3.2-1b", **config):
    return FineTune(model=model, dataset="hf://a/b", config=TorchTuneConfig(**config))


def fine_tune_on(runtime, **fields):
    return FineTune(model="llama3.2-1b", config={"framework": "torchtune"}, runtime=runtime, **fields)


def builtin_job(**config):
    return TrainJob(
        trainer=BuiltinTrainer(config=TorchTuneConfig(**config)),
        runtime="torchtune-llama3.2-1b",
        initializer=Initializer(),
    )


@pytest.mark.parametrize(
    ("make", "field_name", "value", "allowed"),
    [
        # Accepted by the server; then JobSet can't create the Job and the TrainJob stays without a status.
        (lambda: container(resources_per_node={"gpus": 1}), "resources_per_node.gpus", "1", "vendor.example/device"),
        (lambda: container(resources_per_node={"gpu": 0.5}), "resources_per_node.gpu", "0.5", "whole numbers"),
        (lambda: container(resources_per_node={"a.b/c": "1500m"}), "resources_per_node.a.b/c", "1500m", "whole"),
        (lambda: container(resources_per_node={"gpu": 1, "mig-1g.5gb": 1}), "resources_per_node", "mig", "one size"),
        (lambda: container(resources_per_node={"cpu": "-1"}), "resources_per_node.cpu", "-1", "500m"),
        (lambda: container(env={"A=B": "1"}), "env", "A=B", "printable ASCII"),
        (lambda: container(env={"A": None}), "env.A", "None", "omit the variable"),
        (lambda: container(image=""), "image", "''", "at least 1 character"),
        # Accepted, but it ends immediately: the Trainer's nanoseconds overflow.
        (lambda: TrainJob(deadline=timedelta(days=300 * 365)), "deadline", "109500 days", "106580 days"),
        (lambda: TrainJob(deadline="soon"), "deadline", "'soon'", "write a duration, such as 30m, 12h, 7d or PT6H"),
        (lambda: TrainJob(deadline=[1]), "deadline", "[1]", "a number of seconds, or a timedelta"),
        # Refused by the server, with another message.
        (lambda: container(args=["x" * 65_537]), "args", "65537 characters", "65536"),
        (lambda: container(args=["x"] * 129), "args", "129 items", "128"),
        (lambda: builtin_fine_tune(peft_config=QLORA), "config.peft_config.quantize_base", "True", "{'gpu': 1}"),
        (
            lambda: builtin_fine_tune(peft_config=QLORA, resources_per_node={"cpu": 1}),
            "config.peft_config.quantize_base",
            "True",
            "num_proc_per_node=1",
        ),
        (lambda: builtin_job(peft_config=QLORA), "trainer.config.peft_config.quantize_base", "True", "{'gpu': 1}"),
        (
            lambda: fine_tune_on("x-torchtune-llama3.2-1b", dataset="hf://a/b"),
            "runtime",
            "x-torchtune",
            "WORD-llama3.2-1b",
        ),
        # Accepted, but the Trainer runs another training than the requested one.
        (lambda: fine_tune_on("torchtune-qwen2.5-1.5b", dataset="hf://a/b"), "runtime", "qwen", "WORD-llama3.2-1b"),
        (
            lambda: fine_tune_on("torchtune-llama3.2-1b", workspace="w"),
            "runtime",
            "torchtune-llama3.2-1b",
            "omit it",
        ),
        (
            lambda: FineTune(
                model="llama3.2-1b", config={"framework": "torchtune"}, dataset="hf://a/b", dataset_path="x"
            ),
            "dataset_path",
            "x",
            "with a workspace",
        ),
        (
            lambda: FineTune(
                model="llama3.2-1b", config={"framework": "torchtune"}, dataset="hf://a/b", output_path="x"
            ),
            "output_path",
            "x",
            "with a workspace",
        ),
        (
            lambda: TrainJob(
                trainer=BuiltinTrainer(config=TorchTuneConfig()), runtime="torchtune-llama3.2-1b", workspace="w"
            ),
            "workspace",
            "w",
            "FineTune(workspace=...)",
        ),
        (
            lambda: TrainJob(trainer=container(), runtime="torchtune-llama3.2-1b", workspace="w"),
            "workspace",
            "w",
            "share their own volume at /workspace",
        ),
        (
            lambda: TrainJob(trainer=container(), runtime="own", initializer={"dataset": "hf://a/b"}, workspace="w"),
            "workspace",
            "w",
            "share their own volume at /workspace",
        ),
        (
            lambda: fine_tune(overrides=["model.lora_attn_modules=[q_proj]"]),
            "overrides",
            "model.lora_attn_modules",
            "peft_config=LoraConfig(...)",
        ),
        # No such configuration in torchtune 0.6.1.
        (lambda: fine_tune("llama3.3-70b"), "config.num_proc_per_node", "1", "resources_per_node={'gpu': 8}"),
        (lambda: fine_tune(learning_rate=float("inf")), "learning_rate", "inf", "finite"),
        # The initializers' programs end with a traceback.
        (lambda: InitializeDataset(workspace="w", storage_uri="hf://alpaca"), "storage_uri", "alpaca", "NAME"),
        (lambda: Initializer(dataset="hf://alpaca"), "dataset.storage_uri", "hf://alpaca", "ORGANIZATION/NAME"),
        (lambda: InitializeModel(workspace="w", storage_uri="hf://a/b/c"), "storage_uri", "a/b/c", "without a path"),
        (lambda: Initializer(model="hf://a/b/c"), "model.storage_uri", "hf://a/b/c", "without a path"),
        # The same folder, written differently.
        (lambda: ExportModel(workspace="w", destination="/workspace//model"), "destination", "//model", "another step"),
        (lambda: ExportModel(workspace="w", destination="/workspace/./output/x"), "destination", "output", "another"),
        (lambda: CustomTrainer(func=fine_tune, func_args={"a": object()}), "func_args", "a", "JSON"),
    ],
)
def test_refused(make, field_name, value, allowed):
    with pytest.raises(InvalidSpec) as raised:
        make()
    [problem] = raised.value.problems
    assert problem.field.startswith(field_name)
    assert value in f"{problem.field}: {problem.value}"
    assert allowed in problem.allowed


@pytest.mark.parametrize(
    "make",
    [
        lambda: container(env={"hf_token": SECRET}),
        lambda: container(env={"HF_TOKEN": 1234567}),
        lambda: InitializeModel(workspace="w", storage_uri=f"s3://{SECRET}@bucket/x"),
        lambda: InitializeModel(workspace="w", storage_uri=f"user:{SECRET}@bucket/x"),
        lambda: ExportModel(workspace="w", destination=f"s3://{SECRET}@bucket/x"),
        lambda: ExportModel(workspace="w", destination="s3://b/x", endpoint=f"https://{SECRET}@host"),
        lambda: CustomTrainer(func=fine_tune, pip_index_urls=[f"https://user:{SECRET}@host/simple"]),
        lambda: SecretKeyReference(name="s", key=f"{SECRET}/=="),
        lambda: SecretReference(name="s", keys={"ACCESS_TOKEN": f"{SECRET}/=="}),
    ],
)
def test_a_secret_value_is_refused_and_never_shown(make):
    with pytest.raises(InvalidSpec) as raised:
        make()
    assert "***" in str(raised.value)
    assert not [part for part in (SECRET, "1234567") if part in str(raised.value)]


@pytest.mark.parametrize(
    "make",
    [
        lambda: builtin_fine_tune(peft_config=QLORA, resources_per_node={"gpu": 1}),
        lambda: builtin_fine_tune(peft_config=QLORA, num_proc_per_node=1),
        lambda: fine_tune(peft_config=QLORA),
        lambda: fine_tune("llama3.3-70b", peft_config=QLORA, resources_per_node={"gpu": 8}),
        lambda: FineTune(
            model="llama3.3-70b", config={"framework": "torchtune"}, dataset="hf://a/b", runtime="mine-llama3.3-70b"
        ),
        lambda: InitializeModel(workspace="w", storage_uri="hf://gpt2"),
        lambda: InitializeDataset(workspace="w", storage_uri="hf://a/b/c/d"),
        lambda: container(resources_per_node={"CPU": 2, "storage": "1Gi", "gpu": "1.0", "hugepages-2Mi": "4Mi"}),
        lambda: TrainJob(deadline=timedelta(days=365)),
    ],
)
def test_allowed(make):
    make()


@pytest.mark.parametrize(
    ("resources", "count"),
    [
        (None, 0),
        ({"cpu": "4"}, 0),
        ({"gpu": "2"}, 2),
        ({"amd.com/gpu": "4"}, 4),
        ({"mig-1g.5gb": "1"}, 0),
        # Both names are the same resource; the later value counts, as in the manifest.
        ({"nvidia.com/gpu": "2", "gpu": "1"}, 1),
    ],
)
def test_gpus_are_counted_as_the_trainer_does(resources, count):
    assert count_gpus(resources) == count


@dataclass
class SdkS3:
    storage_uri: str
    access_key_id: str | None = None
    secret_access_key: str | None = None


def test_credentials_of_an_sdk_object_are_refused_by_field_name():
    with pytest.raises(InvalidSpec) as raised:
        Initializer(model=SdkS3("s3://b/m", secret_access_key=SECRET))
    [problem] = raised.value.problems
    assert (problem.field, problem.value) == ("model.secret_access_key", "***")
    assert "secret='NAME'" in problem.allowed


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=3,
)


def fields_of(kind):
    return st.fixed_dictionaries({}, optional=dict.fromkeys(kind.model_fields, ANYTHING))


@given(st.sampled_from([FineTune, InitializeModel, ExportModel, TrainJob, TorchTuneConfig, container]), st.data())
def test_invalid_fields_always_raise_invalid_spec(kind, data):
    given_fields = data.draw(fields_of(CustomTrainerContainer if kind is container else kind))
    try:
        kind(**given_fields)
    except InvalidSpec as error:
        assert error.problems
        assert all(problem.allowed or problem.kind is ProblemKind.MISSING for problem in error.problems)
