"""TrainJobs of trainings with TRL and others, compared with files: a change of a manifest must be intended.

UPDATE_GOLDEN=1 pytest tests/unit/manifest/test_golden_trl.py     writes the files anew
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainjob import (
    FineTune,
    LLaMAFactoryConfig,
    LLaMAFactoryLoraConfig,
    Placement,
    SecretKeyReference,
    TRLConfig,
    TRLLoraConfig,
    UnslothConfig,
    UnslothLoraConfig,
)
from trainjob.frameworks.llamafactory import framework as llamafactory
from trainjob.frameworks.trl import framework as trl
from trainjob.frameworks.unsloth import framework as unsloth
from trainjob.frameworks.workspace_framework import PROGRAM_DEPENDENCIES
from trainjob.manifest import Dialect, build_trainjob, to_trainjob
from trainjob.packing import program_command

GOLDEN = Path(__file__).parent / "golden"
PROGRAMS = {
    program_command(each.FRAMEWORK.program, *PROGRAM_DEPENDENCIES, *each.FRAMEWORK.dependencies)[3]
    for each in (llamafactory, trl, unsloth)
}


def concise(completions, max_words=20, **_):
    """Return 1.0 for each answer that is short enough."""
    return [float(len(text.split()) <= max_words) for text in completions]


STEPS = {
    "sft": FineTune(
        model="llama-1b",
        workspace="tickets",
        config=TRLConfig(
            method="sft", epochs=3, learning_rate=2e-5, columns={"prompt": "question", "completion": "answer"}
        ),
    ),
    "sft-lora-on-gpus": FineTune(
        model="llama-8b",
        workspace="tickets",
        output_path="lora",
        image="registry.example/trl:1",
        env={"HF_TOKEN": SecretKeyReference(name="hub", key="token")},
        placement=Placement(node_selector={"gpu": "h100"}, termination_grace_period_seconds=120),
        queue="team",
        config=TRLConfig(
            method="sft",
            precision="bf16",
            packing=True,
            max_length=4096,
            peft_config=TRLLoraConfig(lora_rank=16, target_modules=("all-linear",), load_in_4bit=True),
            attn_implementation="flash_attention_2",
            resources_per_node={"gpu": 4},
        ),
    ),
    "dpo-fsdp-on-nodes": FineTune(
        model="llama-70b",
        workspace="tickets",
        model_path="sft",
        dataset_path="pairs",
        output_path="dpo",
        config=TRLConfig(
            method="dpo",
            fsdp=True,
            gradient_checkpointing=True,
            num_nodes=4,
            resources_per_node={"gpu": 8},
            arguments={"beta": 0.1, "fsdp_config": {"cpu_offload": True}},
        ),
    ),
    "grpo-vllm": FineTune(
        model="qwen-1.5b",
        workspace="tickets",
        config=TRLConfig(
            method="grpo",
            use_vllm=True,
            reward_functions=(concise, "think_format_reward"),
            resources_per_node={"gpu": 1},
            arguments={"num_generations": 8, "max_completion_length": 256, "reward_weights": [1.0, 0.5]},
        ),
    ),
    "distillation-deepspeed": FineTune(
        model="qwen-0.5b",
        workspace="tickets",
        resume=False,
        config=TRLConfig(
            method="distillation",
            teacher_path="teacher",
            deepspeed={"zero_optimization": {"stage": 3}},
            resources_per_node={"gpu": 2},
        ),
    ),
}
STEPS["llamafactory-lora"] = FineTune(
    model="llama-8b",
    workspace="tickets",
    dataset_path="alpaca",
    config=LLaMAFactoryConfig(
        method="sft",
        template="llama3",
        epochs=3,
        precision="bf16",
        columns={"prompt": "instruction", "query": "input", "completion": "output"},
        peft_config=LLaMAFactoryLoraConfig(lora_rank=16, target_modules=("all-linear",)),
        resources_per_node={"gpu": 2},
        arguments={"warmup_steps": 20},
    ),
)
STEPS["unsloth-qlora"] = FineTune(
    model="llama-8b",
    workspace="tickets",
    dataset_path="chats",
    output_path="qlora",
    image="registry.example/unsloth:2026.10.9",
    config=UnslothConfig(
        method="sft",
        epochs=3,
        max_length=4096,
        packing=True,
        precision="bf16",
        gradient_checkpointing="unsloth",
        eval_dataset_path="heldout",
        peft_config=UnslothLoraConfig(lora_rank=16, target_modules=("all-linear",), load_in_4bit=True),
        resources_per_node={"gpu": 2},
        arguments={"bias": "none", "float32_mixed_precision": False, "warmup_steps": 20},
    ),
)
DIALECTS = {"sft": list(Dialect)}


def shorten_program(value: Any) -> Any:
    """Return a manifest without the packed program.

    The program changes with every line of its source.
    """
    if isinstance(value, list):
        return [shorten_program(item) for item in value]
    if isinstance(value, dict):
        return {key: shorten_program(item) for key, item in value.items()}
    return "PROGRAM" if value in PROGRAMS else value


@pytest.mark.parametrize(
    ("name", "dialect"), [(name, dialect) for name in STEPS for dialect in DIALECTS.get(name, [Dialect.V2_2])]
)
def test_a_manifest_is_that_of_its_file(name, dialect):
    job = to_trainjob(STEPS[name], run="0123456789abcdef-0123456789abcdef")
    manifest = shorten_program(build_trainjob(job, name="fine-tune", namespace="team", dialect=dialect))
    text = yaml.safe_dump(manifest, sort_keys=False, width=120)
    file = GOLDEN / f"{name}-{dialect.value}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()
