"""Every method of LLaMA-Factory trains on the laptop cluster, on one process and several."""

from __future__ import annotations

import json
import math

import pytest

from tests.integration.llamafactory.tiny_llamafactory import DATASETS, METHOD_FIELDS, tiny_config
from trainjob import LLaMAFactoryLoraConfig

pytestmark = [pytest.mark.llamafactory, pytest.mark.slow, pytest.mark.timeout(600, func_only=True)]

STEPS = 6
LORA = LLaMAFactoryLoraConfig(lora_rank=4, lora_alpha=8, target_modules=("q_proj", "v_proj"))


def read_record(workspace, name):
    return json.loads((workspace / "output" / name / "trainjob_run.json").read_text())


@pytest.fixture
def judged_answers(workspace):
    """Write a dataset for KTO into the workspace: tickets with a right or a useless answer."""
    folder = workspace / "dataset" / "judged"
    folder.mkdir()
    rows = [
        {"input": f"Ticket {number}", "output": "Route to billing." if good else "I do not know.", "label": good}
        for number in range(64)
        for good in (True, False)
    ]
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))


@pytest.mark.parametrize("method", METHOD_FIELDS)
@pytest.mark.usefixtures("judged_answers")
def test_a_method_trains_to_the_last_step(run_training, workspace, method, evidence):
    fields = {"dataset_path": DATASETS[method]} if method in DATASETS else {}
    outcome, lines = run_training("run", tiny_config(method, max_steps=STEPS), **fields)
    outcome.raise_for_failure()
    assert (outcome.progress.step, outcome.progress.total) == (STEPS, STEPS)
    record = read_record(workspace, "run")
    assert (record["complete"], record["method"], record["step"]) == (True, method, STEPS)
    assert (record["framework"], record["framework_version"]) == ("llamafactory", "0.9.5")
    assert all(math.isfinite(value) for value in record["metrics"].values())
    assert (workspace / "output" / "run" / "model.safetensors").is_file()
    assert [line for line in lines if line.startswith("llamafactory: the image contains llamafactory 0.9.5, ")]
    evidence("features", row="LLaMA-Factory", cell="real run")


@pytest.mark.parametrize("method", ["sft", "dpo"])
def test_a_lora_training_leaves_the_adapter_and_the_merged_model(run_training, workspace, method):
    fields = {"dataset_path": DATASETS[method]} if method in DATASETS else {}
    outcome, _ = run_training("run", tiny_config(method, max_steps=STEPS, peft_config=LORA), **fields)
    outcome.raise_for_failure()
    output = workspace / "output" / "run"
    assert json.loads((output / "adapter_config.json").read_text())["r"] == 4
    assert (output / "adapter_model.safetensors").is_file()
    assert (output / "merged" / "model.safetensors").is_file()
    assert read_record(workspace, "run")["adapter"] is True


def test_conversations_train_with_the_templates_of_tokenizer_and_llamafactory(run_training, workspace):
    for name, fields in {"own": {}, "llama3": {"template": "llama3"}}.items():
        config = tiny_config(max_steps=STEPS, columns={}, **fields)
        outcome, _ = run_training(name, config, dataset_path="chats")
        outcome.raise_for_failure()
        assert read_record(workspace, name)["parameters"].get("template") == fields.get("template")


def test_two_processes_train_one_model(run_training):
    check_two_ranks(run_training, {"num_proc_per_node": 2})


@pytest.mark.usefixtures("torchrun_lock")
def test_two_nodes_train_one_model(run_training):
    check_two_ranks(run_training, {"num_nodes": 2})


def check_two_ranks(run_training, shape):
    """Check that the ranks share the data.

    An epoch of 340 rows with batches of 8 has 43 steps on one process, 22 on two.
    """
    outcome, lines = run_training("run", tiny_config(epochs=1, **shape))
    outcome.raise_for_failure()
    assert outcome.progress.total == 22
    assert len([line for line in lines if line.startswith("llamafactory: the training is complete")]) == 1


def test_evaluation_is_reported(run_training, workspace):
    config = tiny_config(max_steps=STEPS, eval_dataset_path="heldout", eval_strategy="steps", eval_steps=3)
    outcome, _ = run_training("run", config)
    outcome.raise_for_failure()
    assert read_record(workspace, "run")["metrics"]["eval_loss"] > 0
