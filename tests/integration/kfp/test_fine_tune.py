"""Tests of arguments of the component `fine_tune`."""

from __future__ import annotations

import base64
import runpy

import pytest
from kfp import dsl

from trainjob import LLaMAFactoryConfig, TRLConfig, TRLLoraConfig, UnslothConfig, UnslothLoraConfig
from trainjob.errors import InvalidSpec
from trainjob.manifest import build_trainjob, to_trainjob
from trainjob.manifest.identity import spec_hash
from trainjob_kfp import source, steps
from trainjob_kfp.input_names import name_inputs

SFT = {"framework": "trl", "method": "sft", "workspace": "tickets", "model": "m"}
GRPO = {**SFT, "method": "grpo"}
LLAMAFACTORY = {**SFT, "framework": "llamafactory"}
UNSLOTH = {**SFT, "framework": "unsloth", "image": "registry.example/unsloth:1"}
TORCHTUNE = {"framework": "torchtune", "model": "llama3.2-1b", "workspace": "tickets"}
GPU = dsl.TaskConfig(resources={"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}})
NOUNS = ("invoice", "refund")


def count_words(completions, **kwargs):
    import re

    return [float(len(re.findall(r"\w+", text))) for text in completions]


def count_nouns(completions, **kwargs):
    return [sum(noun in text for noun in NOUNS) for text in completions]


def refuse(arguments, task=None):
    """Return the problems of a request that is refused, by field."""
    with pytest.raises(InvalidSpec) as refused:
        steps.fine_tune(arguments, task)
    return {
        problem.field: f"{problem.value} {problem.allowed}"
        for problem in name_inputs(refused.value, arguments).problems
    }


def test_arguments_are_fields_of_the_step_and_of_its_configuration():
    given = {
        "model": "llama-1b",
        "epochs": 0.5,
        "max_steps": 20,
        "batch_size": 4,
        "learning_rate": 1e-4,
        "lora_rank": 16,
        "config": {"packing": True, "num_nodes": 2.0},  # `kfp.local` converts the numbers in a dict to floats
        "arguments": {"logging_steps": 5.0, "warmup_steps": 0.5},
        "model_path": "answers",
        "output_path": "/workspace/output/second",
        "image": "ours/trl",
        "resume": False,
    }
    step = steps.fine_tune({**SFT, **given}, None)
    assert step.config == TRLConfig(
        method="sft",
        epochs=0.5,
        max_steps=20,
        batch_size=4,
        learning_rate=1e-4,
        peft_config=TRLLoraConfig(lora_rank=16),
        packing=True,
        num_nodes=2,
        arguments={"logging_steps": 5, "warmup_steps": 0.5},
    )
    assert (step.model, step.model_path, step.output_path) == ("llama-1b", "answers", "second")
    assert (step.image, step.resume) == ("ours/trl", False)


def test_the_framework_is_the_argument_or_in_the_configuration():
    columns = {"columns": {"prompt": "instruction"}, "template": "llama3"}
    expected = LLaMAFactoryConfig(method="sft", **columns)
    assert steps.fine_tune({**LLAMAFACTORY, "config": columns}, None).config == expected
    config = {"framework": "llamafactory", "method": "sft", **columns}
    assert steps.fine_tune({"model": "m", "workspace": "tickets", "config": config}, None).config == expected
    given = {"lora_rank": 8, "config": {"peft_config": {"load_in_4bit": True}}}
    assert steps.fine_tune({**UNSLOTH, **given}, GPU).config == UnslothConfig(
        method="sft",
        peft_config=UnslothLoraConfig(lora_rank=8, load_in_4bit=True),
        resources_per_node={"nvidia.com/gpu": 1},
    )


def test_empty_and_zero_arguments_count_as_not_given():
    empty = {"epochs": 0.0, "max_steps": 0, "lora_rank": 0, "arguments": {}, "config": {}}
    step = steps.fine_tune({**SFT, **empty}, None)
    assert step == steps.fine_tune(SFT, None)
    assert step.config == TRLConfig(method="sft")


def test_arguments_and_config_are_combined():
    config = {
        "epochs": 9,
        "seed": 3,
        "peft_config": {"lora_alpha": 32, "lora_rank": 4},
        "arguments": {"logging_steps": 2, "warmup_steps": 3},
    }
    given = {"epochs": 1.0, "lora_rank": 16, "arguments": {"logging_steps": 5}}
    found = steps.fine_tune({**SFT, "config": config, **given}, None).config
    assert (found.epochs, found.seed, found.arguments) == (1.0, 3, {"logging_steps": 5, "warmup_steps": 3})
    assert found.peft_config == TRLLoraConfig(lora_rank=16, lora_alpha=32)


def test_resources_of_the_task_apply_to_the_training():
    task = dsl.TaskConfig(resources={"limits": {"nvidia.com/gpu": "2", "cpu": "4"}})
    config = {"resources_per_node": {"cpu": "8"}}
    found = steps.fine_tune({**SFT, "config": config}, task).config
    assert found.resources_per_node == {"nvidia.com/gpu": "2", "cpu": "8"}
    assert found.processes_per_node == 2


def test_the_source_of_a_reward_function_is_sent_to_the_pod():
    names = ["accuracy_reward", "ours.rewards.politeness"]
    step = steps.fine_tune({**GRPO, "config": {"reward_functions": [source(count_words), *names]}}, None)
    words = build_trainjob(to_trainjob(step), name="step", namespace="ml")["spec"]["trainer"]["args"]
    rewards = [words[number + 1] for number, word in enumerate(words) if word == "--reward"]
    assert rewards[1:] == names
    name, _, packed = rewards[0].partition(":")
    received = {}
    exec(base64.b64decode(packed).decode(), received)  # noqa: S102 - the function above
    assert received[name](["two words", "", "three small words"]) == [2.0, 0.0, 3.0]


def test_another_reward_function_is_another_request():
    hashes = {
        spec_hash(steps.fine_tune({**GRPO, "config": {"reward_functions": [text]}}, None))
        for text in (source(count_words), source(count_words).replace("len", "sum"), "ours.rewards.politeness")
    }
    assert len(hashes) == 3


def test_a_reward_function_with_names_of_its_module_is_refused_when_the_pipeline_is_written():
    with pytest.raises(InvalidSpec, match="cannot be count_nouns: it uses NOUNS from its module"):
        source(count_nouns)


def test_a_function_that_is_too_long_for_a_workflow_is_refused(tmp_path):
    path = tmp_path / "long.py"
    path.write_text(f"def score(completions):\n    text = {'x' * 70_000!r}\n    return [len(text)]\n")
    score = runpy.run_path(str(path))["score"]
    with pytest.raises(InvalidSpec, match=r"function cannot be 700\d\d bytes of score: 64000 bytes are allowed"):
        source(score)


@pytest.mark.parametrize(
    ("base", "arguments", "field", "rule"),
    [
        (SFT, {"method": "ppo"}, "method", "'sft'"),
        (SFT, {"epochs": -1.0}, "epochs", "greater than 0"),
        (SFT, {"max_steps": -1}, "max_steps", "at least 1"),
        (SFT, {"lora_rank": -1}, "lora_rank", "at least 1"),
        (SFT, {"arguments": {"logging_step": 1}}, "arguments.logging_step", "did you mean logging_steps"),
        (SFT, {"arguments": {"logging_steps": "many"}}, "arguments.logging_steps", "a number"),
        (SFT, {"arguments": {"num_train_epochs": 2}}, "arguments.num_train_epochs", "epochs"),
        (SFT, {"config": {"no_such": 1}}, "config.no_such", "there is no field 'no_such' in TRLConfig"),
        (SFT, {"config": {"epochs": -1}}, "config.epochs", "greater than 0"),
        (SFT, {"config": {"peft_config": {"lora_rank": 0}}}, "config.peft_config.lora_rank", "at least 1"),
        (SFT, {"config": {"framework": "torchtune"}}, "framework", "config has the framework 'torchtune': give one"),
        (SFT, {"config": {"columns": {"prompt": "a", "completion": "a"}}}, "config.columns", "mean the same column"),
        (SFT, {"config": {"teacher_path": "large"}}, "config.teacher_path", "only distillation has a teacher"),
        (SFT, {"method": "distillation"}, "config.teacher_path", "distillation needs"),
        (SFT, {"workspace": ""}, "workspace", "name the PersistentVolumeClaim"),
        (SFT, {"model": "two words"}, "model", "a free name"),
        (SFT, {"framework": "axolotl"}, "framework", "it must be one of llamafactory, torchtune, trl, unsloth"),
        (SFT, {"framework": ""}, "framework", "choose the framework"),
        (GRPO, {}, "config.reward_functions", "grpo needs functions"),
        (GRPO, {"config": {"reward_functions": ["nope"]}}, "config.reward_functions", "a function, a dotted name"),
        (LLAMAFACTORY, {"config": {"template": "lama3"}}, "config.template", "did you mean llama3"),
        (LLAMAFACTORY, {"arguments": {"stage": "rm"}}, "arguments.stage", "give method"),
        (UNSLOTH, {"method": "grpo"}, "method", "'sft', 'dpo' or 'kto'"),
        (UNSLOTH, {"image": ""}, "image", "give an image with Unsloth 2026.10.9"),
        (UNSLOTH, {}, "config.resources_per_node", "Unsloth trains on GPUs only"),
        (TORCHTUNE, {"epochs": 1.5}, "epochs", "a whole number"),
        (TORCHTUNE, {"method": "sft"}, "method", "there is no field 'method' in TorchTuneConfig"),
    ],
)
def test_an_invalid_argument_is_refused_with_its_name(base, arguments, field, rule):
    problems = refuse({**base, **arguments})
    assert field in problems
    assert rule in problems[field]


def test_every_text_that_is_not_a_function_is_refused():
    texts = ["x = 1", source(count_words), "lambda completions: []", "def f(completions:"]
    problems = refuse({**GRPO, "config": {"reward_functions": texts}})
    assert set(problems) == {f"config.reward_functions[{number}]" for number in (0, 2, 3)}
    assert all("it must be the text of one function" in text for text in problems.values())


def test_all_wrong_arguments_are_named():
    assert refuse({**TORCHTUNE, "lora_rank": -1, "batch_size": -1}).keys() == {"lora_rank", "batch_size"}
