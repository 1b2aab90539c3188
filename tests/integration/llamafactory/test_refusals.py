"""Wrong input ends the pod within its first seconds, and the error names the field and the rule."""

from __future__ import annotations

import pytest

from tests.integration.llamafactory.tiny_llamafactory import tiny_config
from trainjob import LLaMAFactoryLoraConfig
from trainjob.errors import CommandFailed

pytestmark = [pytest.mark.llamafactory, pytest.mark.slow, pytest.mark.timeout(600, func_only=True)]

CASES = {
    "missing columns": (
        tiny_config(columns={}),
        {},
        "dataset_path cannot be a dataset with input, output: sft needs prompt + completion or messages",
    ),
    "no dataset": (tiny_config(), {"dataset_path": "nothing"}, "it does not exist; "),
    "no model": (tiny_config(), {"model_path": "dataset"}, "it must be the folder of a model with config.json"),
    "4 bits without a GPU": (
        tiny_config(peft_config=LLaMAFactoryLoraConfig(load_in_4bit=True)),
        {},
        "config.peft_config.load_in_4bit cannot be True: it requires a GPU, and this node has none",
    ),
    "image without LLaMA-Factory": (
        tiny_config(),
        {"image": "torchtune-trainer"},
        "image cannot be the image of this pod: it must contain LLaMA-Factory 0.9.5",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_wrong_input_is_refused_in_the_pod(run_training, workspace, case):
    config, fields, rule = CASES[case]
    outcome, _ = run_training("run", config, **fields)
    with pytest.raises(CommandFailed) as raised:
        outcome.raise_for_failure()
    assert rule in str(raised.value)
    assert not list((workspace / "output").glob("run/checkpoint-*"))
