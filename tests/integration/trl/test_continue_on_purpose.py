"""A new training starts from a checkpoint of another one, with its own hyperparameters."""

from __future__ import annotations

import ast
import json
import subprocess
from pathlib import Path

import pytest

from tests.integration.trl.tiny_trl import tiny_config
from tests.support.interrupted_trainings import killing_environment, resumed_steps
from tests.support.training_fixtures import ROOT
from trainjob import TRLLoraConfig

__all__ = ["killing_environment"]

pytestmark = [pytest.mark.trl, pytest.mark.slow, pytest.mark.timeout(600, func_only=True)]

GROUPS = """
import json, sys, torch
saved = torch.load(sys.argv[1], weights_only=True)
groups = [{name: value for name, value in group.items() if name != "params"} for group in saved["param_groups"]]
print(json.dumps([groups, sorted({float(state["step"]) for state in saved["state"].values()})]))
"""


def config_for(**fields):
    arguments = {"logging_steps": 1, "save_total_limit": 9, **fields.pop("arguments", {})}
    return tiny_config(max_steps=10, save_strategy="steps", save_steps=2, arguments=arguments, **fields)


def read_rates(lines):
    logs = [ast.literal_eval(line) for line in lines if line.startswith("{'loss'")]
    return {log["step"]: float(log["learning_rate"]) for log in logs}


def read_groups(output, step):
    python, path = ROOT / ".venv/trl/bin/python", output / f"checkpoint-{step}/optimizer.pt"
    done = subprocess.run([python, "-c", GROUPS, path], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_the_new_hyperparameters_win_also_after_a_kill(run_training, workspace, killing_environment):
    outputs = workspace / "output"
    outcome, _ = run_training("first", config_for())
    outcome.raise_for_failure()
    changed = config_for(learning_rate=1e-3, lr_scheduler_type="cosine", weight_decay=0.1)
    outcome, lines = run_training("fresh", changed)
    outcome.raise_for_failure()
    rates = read_rates(lines)

    environment = {**killing_environment, "KILL_AT": "checkpoint-8/trainer_state.json"}
    start = {"folder": "output/first", "step": 4}
    outcome, lines = run_training("next", changed, resume_from=start, env=environment)
    assert (outcome.succeeded, Path(environment["KILLED"]).exists()) == (False, True), lines[-20:]
    [line] = [line for line in lines if line.startswith("starts from ")]
    assert line.startswith("starts from step 4 of run first (")
    assert "config.learning_rate 0.001 instead of 0.003" in line
    found = read_rates(lines)
    assert found == pytest.approx({step: rates[step] for step in found})
    assert min(found) == 5

    outcome, lines = run_training("next", changed, resume_from=start, env=environment)
    outcome.raise_for_failure()
    assert resumed_steps(lines) == [6]
    found = read_rates(lines)
    assert found == pytest.approx({step: rates[step] for step in range(7, 11)})
    for step in (6, 10):
        groups, counts = read_groups(outputs / "next", step)
        expected, _ = read_groups(outputs / "fresh", step)
        assert groups == expected
        assert counts == [step]  # the moments are those of the first training, and not new ones
    parent = json.loads((outputs / "next/trainjob_run.json").read_text())["parent"]
    assert (parent["step"], Path(parent["folder"]).name) == (4, "checkpoint-4")
    assert (outputs / "first/checkpoint-4/trainjob_complete").is_file()


def test_a_change_with_which_no_state_can_be_loaded_is_refused(run_training, workspace):
    outcome, _ = run_training("first", config_for())
    outcome.raise_for_failure()
    lora = config_for(peft_config=TRLLoraConfig(lora_rank=4, target_modules=("q_proj", "v_proj")))
    outcome, lines = run_training("next", lora, resume_from="output/first")
    assert not outcome.succeeded
    assert any("config.peft_config" in line and "undo the change" in line for line in lines), lines[-20:]
    outcome, lines = run_training("longer", config_for(), resume_from="output/first/checkpoint-10")
    assert not outcome.succeeded
    assert any("nothing is left to train" in line for line in lines), lines[-20:]
