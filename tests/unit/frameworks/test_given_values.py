"""A value that a user gives is sent, refused, or the default, in every field of every framework's configuration."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from trainjob import FineTune, InvalidSpec, LLaMAFactoryConfig, TorchTuneConfig, TRLConfig, UnslothConfig
from trainjob.frameworks.trl.argument_names import LORA_LEARNING_RATES
from trainjob.frameworks.trl.pod.lora_arguments import choose_lora_arguments
from trainjob.manifest.steps import to_trainjob

FALSE_VALUES = (0, 0.0, False, "", ())
GPU = {"gpu": 1}
FIELDS: dict[Any, dict[str, Any]] = {
    TRLConfig: {"method": "sft"},
    LLaMAFactoryConfig: {"method": "sft"},
    UnslothConfig: {"method": "sft", "resources_per_node": GPU},
    TorchTuneConfig: {},
}
"""Fields that each configuration requires."""
# False is the recipes' default. It is not sent, because any value chose QLoRA up to Trainer 2.2.
DEFAULTS = {"quantize_base": False, "use_dora": False}


def build(config_class, fields):
    """Return the trainer of a step as JSON values."""
    config = config_class(**{**FIELDS[config_class], **fields})
    step = FineTune(model="llama3.2-1b", workspace="w", image="registry.example/train:1", config=config)
    return to_trainjob(step).trainer.model_dump(mode="json")


def describe_cases():
    for config_class, required in FIELDS.items():
        lora = {"lora_attn_modules": ("q_proj",)} if config_class is TorchTuneConfig else {"lora_rank": 8}
        for name in config_class.model_fields:
            yield pytest.param(config_class, {}, name, id=f"{config_class.__name__}.{name}")
        lora_class = type(config_class(**required, peft_config=lora).peft_config)
        for name in lora_class.model_fields:
            yield pytest.param(config_class, lora, name, id=f"{lora_class.__name__}.{name}")


@pytest.mark.parametrize(("config_class", "lora", "name"), list(describe_cases()))
def test_a_false_value_is_sent_or_refused_or_the_default(config_class, lora, name):
    owner = type(config_class(**FIELDS[config_class], peft_config=lora).peft_config) if lora else config_class
    default = DEFAULTS.get(name, owner.model_fields[name].default)
    for value in FALSE_VALUES:
        fields = {"peft_config": {**lora, name: value}} if lora else {name: value}
        without = {"peft_config": {key: lora[key] for key in lora if key != name}} if lora else {}
        try:
            sent = build(config_class, fields)
        except InvalidSpec as refusal:
            assert name in str(refusal), value
            continue
        assert value == default or sent != build(config_class, without), f"{value!r} is not sent"


@pytest.mark.parametrize("dropout", [0, 0.0, 0.05])
def test_a_dropout_is_sent_with_its_value(dropout):
    sent = build(TRLConfig, {"peft_config": {"lora_dropout": dropout}})
    assert f"--lora_dropout={float(dropout)}" in sent["args"]


TARGETS = {
    ("q_proj",): [r"(.*\.)?q_proj"],
    ("self_attn.q_proj",): [r"(.*\.)?self_attn\.q_proj"],
    ("all-linear",): ["all-linear"],
    (r".*layers\.[01]\..*_proj",): [r".*layers\.[01]\..*_proj"],
    ("q_proj", "v_proj"): ["q_proj", "v_proj"],
}


@pytest.mark.parametrize(("names", "sent"), TARGETS.items())
def test_one_target_is_a_name_as_several_are(names, sent):
    words = build(TRLConfig, {"peft_config": {"target_modules": names}})["args"]
    start = words.index("--lora_target_modules") + 1
    assert list(itertools.takewhile(lambda word: not word.startswith("--"), words[start:])) == sent


@pytest.mark.parametrize("method", ["sft", "dpo", "kto", "reward"])
def test_lora_has_a_learning_rate_for_lora(method):
    rates = [
        word
        for word in build(TRLConfig, {"method": method, "peft_config": {"lora_rank": 8}})["args"]
        if "_rate" in word
    ]
    expected = LORA_LEARNING_RATES.get(method)
    assert rates == ([f"--learning_rate={expected}"] if expected else [])
    notes = TRLConfig(method=method, peft_config={"lora_rank": 8}).notes
    assert len(notes) == (method != "reward")
    assert all(f"the learning rate is {expected:g}" in note for note in notes)


@pytest.mark.parametrize("fields", [{}, {"learning_rate": 1e-3, "peft_config": {"lora_rank": 8}}])
def test_a_given_learning_rate_and_that_of_all_weights_stay(fields):
    words = build(TRLConfig, fields)["args"]
    assert [word for word in words if "learning_rate" in word] == (["--learning_rate=0.001"] if fields else [])
    assert TRLConfig(method="sft", **fields).notes == ()


MAPPED = {"llama", "mixtral", "gemma3_text"}
CHOSEN = {
    "a type of peft's table": ({"model_type": "llama"}, {}, []),
    "another type": ({"model_type": "smollm3"}, {}, ["--lora_target_modules=all-linear"]),
    "given layers": ({"model_type": "smollm3"}, {"lora_target_modules": ["q_proj"]}, []),
    "experts": (
        {"model_type": "mixtral", "num_local_experts": 8},
        {},
        ["--lora_target_modules=all-linear", "--lora_dropout=0.0"],
    ),
    "experts of a multimodal model": (
        {"model_type": "llama4", "text_config": {"num_local_experts": 16}},
        {"lora_target_modules": ["q_proj"]},
        ["--lora_dropout=0.0"],
    ),
    "experts and a dropout": (
        {"model_type": "mixtral", "num_local_experts": 8},
        {"lora_dropout": 0.1},
        ["--lora_target_modules=all-linear"],
    ),
    "a model of which peft cannot adapt all linear layers": (
        {"model_type": "falcon_mamba"},
        {"lora_target_modules": ["all-linear"]},
        ["--lora_target_modules", "in_proj", "x_proj"],
    ),
    "another such model, by default": ({"model_type": "mamba2"}, {}, ["--lora_target_modules", r"(.*\.)?in_proj"]),
    "one dense layer in place of experts": ({"model_type": "llama", "num_local_experts": 0}, {}, []),
}


@pytest.mark.parametrize(("config", "given", "chosen"), CHOSEN.values(), ids=CHOSEN)
def test_arguments_of_lora_follow_from_the_model(config, given, chosen):
    assert list(choose_lora_arguments(config, given, MAPPED)) == chosen
