"""Published fine-tunings, expressed as requests of this project and run with the tiny model.

The values are from the repository that the comment of each entry names. Model, data and number of steps are the tiny
ones of these tests.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.integration.torchtune.tiny_trainings import tiny_config
from trainjob import LoraConfig

pytestmark = [pytest.mark.torchtune, pytest.mark.slow]

STEPS = 2  # of each epoch
ALL = ("q_proj", "k_proj", "v_proj", "output_proj")
PUBLISHED: dict[str, dict[str, Any]] = {
    # bahram-jahanshahi/let-me-finetune-by-torch-tune, README.md: llama3_2/3B_lora_single_device with three changes.
    "torchtune-lora-3b": {
        "model": "llama3.2-3b",
        "overrides": ["checkpointer.checkpoint_files=[model.safetensors]"],
        "config": {"dtype": "fp32", "peft_config": LoraConfig(lora_rank=8), "epochs": 1},
        "expected": {"lora_rank": "8", "epochs": "1", "dtype": "fp32"},
    },
    # evseevgrv/SignSGD_GoldenGate, fine_tuning/finetune.sh: LoRA on Llama 3.2 1B; a batch of 16 in two halves.
    "lora-1b": {
        "config": {
            "peft_config": LoraConfig(lora_rank=32, lora_alpha=64, lora_attn_modules=ALL, apply_lora_to_mlp=True),
            "batch_size": 8,
            "gradient_accumulation_steps": 2,
            "learning_rate": 3e-2,
            "epochs": 3,
        },
        "expected": {
            "lora_rank": "32",
            "lora_alpha": "64",
            "gradient_accumulation_steps": "2",
            "lr": "0.03",
            "epochs": "3",
        },
    },
    # Kyriection/DoRA, commonsense_reasoning/script/APOLLO_mini.sh: all weights of Llama 3.2 1B; not their optimizer.
    "full-1b": {
        "config": {"batch_size": 16, "learning_rate": 1e-4, "epochs": 3},
        "expected": {"batch_size": "16", "lr": "0.0001", "epochs": "3"},
    },
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_fine_tuning_runs(run_training, workspace, name):
    given = PUBLISHED[name]
    config = tiny_config(*given.get("overrides", ()), max_steps_per_epoch=STEPS, **given["config"])
    outcome, _ = run_training(name, config, model=given.get("model", "llama3.2-1b"))
    outcome.raise_for_failure()
    [log] = (workspace / "output" / name / "logs").glob("*.txt")
    assert len(log.read_text().splitlines()) == STEPS * config.epochs
    written = (workspace / "output" / name / "torchtune_config.yaml").read_text()
    assert dict(re.findall(r"^ *(\w+): (\S+)$", written, re.MULTILINE)).items() >= given["expected"].items()
