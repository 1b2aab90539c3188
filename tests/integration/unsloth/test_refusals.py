"""A training with Unsloth ends within its first seconds on a node without a GPU, or with a wrong input."""

from __future__ import annotations

import pytest

from trainjob import UnslothConfig, UnslothLoraConfig
from trainjob.errors import CommandFailed

pytestmark = [pytest.mark.torchtune, pytest.mark.slow, pytest.mark.timeout(600, func_only=True)]

CONFIG = UnslothConfig(
    method="sft",
    columns={"prompt": "input", "completion": "output"},
    peft_config=UnslothLoraConfig(load_in_4bit=True),
    resources_per_node={"gpu": 1},
)
CASES = {
    "no GPU": (
        {},
        "unsloth: failed: config.resources_per_node cannot be a node without a GPU: Unsloth trains on GPUs only",
    ),
    "no model": ({"model_path": "dataset"}, "it must be the folder of a model with config.json"),
    # The program runs in the environment of pytest, which has neither torch nor Unsloth.
    "image without Unsloth": (
        {"image": "python"},
        "unsloth: failed: image cannot be the image of this pod: it must contain Unsloth 2026.10.9",
    ),
    "Unsloth's image on the laptop cluster": (
        {"image": "docker.io/unsloth/unsloth:core"},
        "the laptop cluster has no environment for Unsloth, which trains on GPUs only; on a machine with a GPU, name",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_refused_in_the_pod(run_training, workspace, case):
    fields, rule = CASES[case]
    outcome, _ = run_training("run", CONFIG, **fields)
    with pytest.raises(CommandFailed) as raised:
        outcome.raise_for_failure()
    assert rule in str(raised.value)
    assert not (workspace / "output").exists()
