"""Tests of arguments of the component `fine_tune_llamafactory`."""

from __future__ import annotations

import pytest

from trainjob import LLaMAFactoryConfig, LLaMAFactoryLoraConfig
from trainjob.errors import InvalidSpec
from trainjob_kfp import steps

SFT = {"method": "sft", "workspace": "tickets", "model": "m"}


def test_arguments_are_fields_of_the_step_and_of_its_configuration():
    given = {
        "model": "llama-1b",
        "epochs": 0.5,
        "max_steps": 20,
        "batch_size": 4,
        "learning_rate": 1e-4,
        "lora_rank": 16,
        "template": "llama3",
        "columns": {"prompt": "instruction", "completion": "output"},
        "config": {"precision": "bf16", "peft_config": {"lora_alpha": 32}},
        "arguments": {"logging_steps": 5.0, "warmup_steps": 0.5},  # `kfp.local` converts numbers in a dict to floats
        "output_path": "/workspace/output/second",
    }
    step = steps.fine_tune_llamafactory({**SFT, **given}, None)
    assert step.config == LLaMAFactoryConfig(
        method="sft",
        epochs=0.5,
        max_steps=20,
        batch_size=4,
        learning_rate=1e-4,
        template="llama3",
        precision="bf16",
        peft_config=LLaMAFactoryLoraConfig(lora_rank=16, lora_alpha=32),
        columns={"prompt": "instruction", "completion": "output"},
        arguments={"logging_steps": 5, "warmup_steps": 0.5},
    )
    assert (step.model, step.output_path, step.image) == ("llama-1b", "second", None)


def test_empty_and_zero_arguments_count_as_not_given():
    empty = {"epochs": 0.0, "max_steps": 0, "lora_rank": 0, "template": "", "columns": {}, "arguments": {}}
    assert steps.fine_tune_llamafactory({**SFT, **empty}, None).config == LLaMAFactoryConfig(method="sft")


@pytest.mark.parametrize(
    ("arguments", "field", "rule"),
    [
        ({"method": "ppo"}, "method", "'pt', 'sft', 'dpo' or 'kto'"),
        ({"template": "lama3"}, "template", "did you mean llama3"),
        ({"lora_rank": -1}, "lora_rank", "at least 1"),
        ({"arguments": {"logging_step": 1}}, "arguments.logging_step", "did you mean logging_steps"),
        ({"arguments": {"stage": "rm"}}, "arguments.stage", "give method"),
        ({"config": {"framework": "trl"}}, "config.framework", "always uses llamafactory"),
        ({"workspace": ""}, "workspace", "name the claim"),
    ],
)
def test_an_invalid_argument_is_refused_with_its_name(arguments, field, rule):
    with pytest.raises(InvalidSpec) as refused:
        steps.fine_tune_llamafactory({**SFT, **arguments}, None)
    problems = {problem.field: problem.allowed for problem in refused.value.problems}
    assert field in problems, problems
    assert rule in problems[field]


def test_the_component_of_torchtune_names_this_one():
    given = {"model": "llama3.2-1b", "workspace": "tickets", "config": {"framework": "llamafactory"}}
    with pytest.raises(InvalidSpec, match="the component fine_tune_llamafactory for llamafactory"):
        steps.fine_tune(given, None)
