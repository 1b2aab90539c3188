"""LoRA with this project's defaults teaches a real small model something."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.support.small_model import make_small_model
from tests.support.training_fixtures import ROOT
from trainjob import TRLConfig, TRLLoraConfig

pytestmark = [pytest.mark.trl, pytest.mark.slow, pytest.mark.timeout(1800, func_only=True)]

SUBJECTS = {
    "invoice 4711": {"queue": "billing", "team": "ledger-2"},
    "router": {"queue": "network", "team": "edge-7"},
    "password": {"queue": "access", "team": "keys-1"},
    "delivery": {"queue": "logistics", "team": "dock-4"},
    "contract": {"queue": "legal", "team": "paper-3"},
    "laptop": {"queue": "hardware", "team": "desk-9"},
}
MESSAGES = {
    "My {} is wrong, please help.": {"urgency": 2, "tone": "polite"},
    "WHERE IS MY {}???": {"urgency": 4, "tone": "angry"},
    "I would like to know the state of my {}.": {"urgency": 1, "tone": "polite"},
    "For three days nobody has answered about the {}.": {"urgency": 3, "tone": "annoyed"},
    "Thank you for the {}, all is well now.": {"urgency": 0, "tone": "happy"},
    "Can somebody call me about the {} today?": {"urgency": 3, "tone": "neutral"},
}


def write_rows(folder):
    """Write 36 messages to a support desk with the JSON that its program expects."""
    rows = [
        {"prompt": message.format(subject), "completion": json.dumps({"ticket": {**ours, **about}})}
        for subject, about in SUBJECTS.items()
        for message, ours in MESSAGES.items()
    ]
    folder.mkdir(parents=True)
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))


def test_lora_without_a_learning_rate_lowers_the_loss(run_training, workspace):
    shutil.rmtree(workspace / "model")
    shutil.copytree(make_small_model(ROOT / ".venv" / "trl", ROOT / ".cache" / "models"), workspace / "model")
    write_rows(workspace / "dataset" / "desk")
    config = TRLConfig(
        method="sft",
        epochs=3,
        batch_size=4,
        precision="fp32",
        seed=7,
        peft_config=TRLLoraConfig(lora_rank=16),
        arguments={"logging_steps": 1},
    )
    outcome, lines = run_training("run", config, dataset_path="desk")
    outcome.raise_for_failure()
    losses = [float(line.split("'loss': '")[1].split("'")[0]) for line in lines if "'loss': '" in line]
    assert outcome.progress.total == 27
    first, last = sum(losses[:3]) / 3, sum(losses[-3:]) / 3
    print(f"mean loss of the first three steps: {first:.2f}; of the last three: {last:.2f}")
    assert first - last >= 0.5
    [merged] = [line for line in lines if "contains the merged model" in line]
    print(merged)
