"""Every method of TRL trains on the laptop cluster, on one process, several processes and several nodes."""

from __future__ import annotations

import contextlib
import json
import math
import socket

import pytest

from tests.integration.trl.tiny_trl import METHOD_FIELDS, STEP_FIELDS, tiny_config
from trainjob import TRLLoraConfig

pytestmark = [pytest.mark.trl, pytest.mark.slow, pytest.mark.timeout(600, func_only=True)]

STEPS = 6
SHAPES = {
    "two processes": {"num_proc_per_node": 2},
    "FSDP": {"num_proc_per_node": 2, "fsdp": True},
}


def read_tensor_names(file):
    """Return the names of the tensors in a file of weights, from its header."""
    data = file.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return set(header) - {"__metadata__"}


def read_record(workspace, name):
    return json.loads((workspace / "output" / name / "trainjob_run.json").read_text())


@pytest.mark.parametrize("method", METHOD_FIELDS)
def test_a_method_trains_to_the_last_step(run_training, workspace, method, evidence):
    outcome, lines = run_training("run", tiny_config(method, max_steps=STEPS), **STEP_FIELDS.get(method, {}))
    outcome.raise_for_failure()
    assert (outcome.progress.step, outcome.progress.total) == (STEPS, STEPS)
    record = read_record(workspace, "run")
    assert (record["complete"], record["method"], record["step"]) == (True, method, STEPS)
    assert all(math.isfinite(value) for value in record["metrics"].values())
    assert (workspace / "output" / "run" / "model.safetensors").is_file()
    assert [line for line in lines if line.startswith("trl: the image contains trl 1.16.0, transformers 5.23.0")]
    evidence("features", row="TRL", cell="real run")


def test_a_training_starts_while_another_program_uses_the_trainers_port(run_training):
    """All pods of a laptop cluster share the network, so the kubelet replaces the port that the Trainer sets."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # another program has the port
            taken.bind(("", 29500))
            taken.listen()
        outcome, _ = run_training("run", tiny_config("sft", max_steps=1))
    outcome.raise_for_failure()


@pytest.mark.parametrize("shape", SHAPES)
def test_several_processes_train_one_model(run_training, workspace, shape):
    check_two_ranks(run_training, workspace, SHAPES[shape])


@pytest.mark.usefixtures("torchrun_lock")
def test_two_nodes_train_one_model(run_training, workspace):
    check_two_ranks(run_training, workspace, {"num_nodes": 2})


def check_two_ranks(run_training, workspace, shape):
    """Check that the ranks share the data.

    An epoch of 340 rows with batches of 8 has 43 steps on one process, 22 on two.
    """
    outcome, lines = run_training("run", tiny_config(epochs=1, **shape))
    outcome.raise_for_failure()
    assert outcome.progress.total == 22
    assert len([line for line in lines if line.startswith("trl: the training is complete")]) == 1
    assert read_record(workspace, "run")["metrics"]["loss"] < 1.0


@pytest.mark.parametrize("modules", [("q_proj",), ("q_proj", "v_proj")], ids=" ".join)
def test_a_lora_training_leaves_the_adapter_and_the_merged_model(run_training, workspace, modules):
    lora = TRLLoraConfig(lora_rank=4, lora_alpha=8, target_modules=modules)
    outcome, _ = run_training("run", tiny_config(max_steps=STEPS, peft_config=lora))
    outcome.raise_for_failure()
    output = workspace / "output" / "run"
    assert json.loads((output / "adapter_config.json").read_text())["r"] == 4
    weights = read_tensor_names(output / "adapter_model.safetensors")
    base = read_tensor_names(workspace / "model" / "model.safetensors")
    trained = {name.removesuffix(".weight") for name in base if name.split(".")[-2] in modules}
    sides = ("lora_A", "lora_B")
    assert weights == {f"base_model.model.{name}.{side}.weight" for name in trained for side in sides}
    assert (output / "merged" / "model.safetensors").is_file()
    assert read_record(workspace, "run")["adapter"] is True


@pytest.mark.parametrize("method", [method for method in METHOD_FIELDS if method != "sft"])
def test_the_adapter_of_every_method_is_merged(run_training, workspace, method):
    """The step compares the logits of the merged model with those of base model and adapter."""
    config = tiny_config(method, max_steps=2, peft_config=TRLLoraConfig(lora_rank=4))
    outcome, lines = run_training("run", config, **STEP_FIELDS.get(method, {}))
    outcome.raise_for_failure()
    assert [line for line in lines if "contains the merged model; its logits differ by" in line]
    assert (workspace / "output" / "run" / "merged" / "model.safetensors").is_file()


def test_evaluation_is_reported(run_training, workspace):
    config = tiny_config(max_steps=STEPS, eval_dataset_path="heldout", eval_strategy="steps", eval_steps=3)
    outcome, _ = run_training("run", config)
    outcome.raise_for_failure()
    assert read_record(workspace, "run")["metrics"]["eval_loss"] > 0
