"""Tests of arguments of the component `fine_tune_unsloth`."""

from __future__ import annotations

import pytest
from kfp import dsl

from trainjob import UnslothConfig, UnslothLoraConfig
from trainjob.errors import InvalidSpec
from trainjob_kfp import steps

GPU = dsl.TaskConfig(resources={"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}})
SFT = {"method": "sft", "workspace": "tickets", "model": "m", "image": "registry.example/unsloth:1"}


def test_arguments_are_fields_of_the_step_and_of_its_configuration():
    given = {
        "model": "llama-1b",
        "epochs": 0.5,
        "max_steps": 20,
        "batch_size": 4,
        "learning_rate": 1e-4,
        "max_length": 4096,
        "lora_rank": 16,
        "load_in_4bit": True,
        "columns": {"prompt": "instruction", "completion": "output"},
        "config": {"precision": "bf16", "peft_config": {"lora_alpha": 32}},
        "arguments": {"logging_steps": 5.0, "warmup_steps": 0.5},  # `kfp.local` converts numbers in a dict to floats
        "output_path": "/workspace/output/second",
    }
    step = steps.fine_tune_unsloth({**SFT, **given}, GPU)
    assert step.config == UnslothConfig(
        method="sft",
        epochs=0.5,
        max_steps=20,
        batch_size=4,
        learning_rate=1e-4,
        max_length=4096,
        precision="bf16",
        peft_config=UnslothLoraConfig(lora_rank=16, lora_alpha=32, load_in_4bit=True),
        columns={"prompt": "instruction", "completion": "output"},
        arguments={"logging_steps": 5, "warmup_steps": 0.5},
        resources_per_node={"nvidia.com/gpu": 1},
    )
    assert (step.model, step.output_path, step.image) == ("llama-1b", "second", "registry.example/unsloth:1")


def test_empty_and_zero_arguments_count_as_not_given():
    empty = {"epochs": 0.0, "max_steps": 0, "max_length": 0, "lora_rank": 0, "load_in_4bit": False, "columns": {}}
    expected = UnslothConfig(method="sft", resources_per_node={"nvidia.com/gpu": 1})
    assert steps.fine_tune_unsloth({**SFT, **empty}, GPU).config == expected


@pytest.mark.parametrize(
    ("arguments", "field", "rule"),
    [
        ({"method": "grpo"}, "method", "'sft', 'dpo' or 'kto'"),
        ({"lora_rank": -1}, "lora_rank", "at least 1"),
        ({"arguments": {"logging_step": 1}}, "arguments.logging_step", "did you mean logging_steps"),
        ({"arguments": {"max_seq_length": 1}}, "arguments.max_seq_length", "give max_length"),
        ({"config": {"framework": "trl"}}, "config.framework", "always uses unsloth"),
        ({"image": ""}, "image", "give an image with Unsloth 2026.10.9"),
        ({"workspace": ""}, "workspace", "name the claim"),
    ],
)
def test_an_invalid_argument_is_refused_with_its_name(arguments, field, rule):
    with pytest.raises(InvalidSpec) as refused:
        steps.fine_tune_unsloth({**SFT, **arguments}, GPU)
    problems = {problem.field: problem.allowed for problem in refused.value.problems}
    assert field in problems, problems
    assert rule in problems[field]


def test_a_task_without_an_accelerator_is_refused():
    rule = r"config\.resources_per_node is required: Unsloth trains on GPUs only"
    with pytest.raises(InvalidSpec, match=rule):
        steps.fine_tune_unsloth(SFT, None)


def test_the_component_of_torchtune_names_this_one():
    given = {"model": "llama3.2-1b", "workspace": "tickets", "config": {"framework": "unsloth"}}
    with pytest.raises(InvalidSpec, match="the component fine_tune_unsloth for unsloth"):
        steps.fine_tune(given, None)
