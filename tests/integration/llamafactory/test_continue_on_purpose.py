"""A new training with LLaMA-Factory starts from a checkpoint of another one, with its own learning rate."""

from __future__ import annotations

import ast

import pytest

from tests.integration.llamafactory.tiny_llamafactory import tiny_config

pytestmark = [pytest.mark.llamafactory, pytest.mark.slow, pytest.mark.timeout(600, func_only=True)]


def config_for(rate):
    arguments = {"logging_steps": 1, "save_total_limit": 9}
    fields = {"max_steps": 6, "save_strategy": "steps", "save_steps": 2, "lr_scheduler_type": "linear"}
    return tiny_config(**fields, learning_rate=rate, arguments=arguments)


def read_rates(lines):
    logs = [ast.literal_eval(line) for line in lines if line.startswith("{'loss'")]
    return {log["step"]: float(log["learning_rate"]) for log in logs}


def test_the_new_learning_rate_wins(run_training):
    outcome, lines = run_training("first", config_for(3e-3))
    outcome.raise_for_failure()
    rates = read_rates(lines)
    outcome, lines = run_training("next", config_for(1e-3), resume_from={"folder": "output/first", "step": 2})
    outcome.raise_for_failure()
    [line] = [line for line in lines if line.startswith("starts from ")]
    assert line.startswith("starts from step 2 of run first (")
    assert read_rates(lines) == pytest.approx({step: rates[step] / 3 for step in range(3, 7)}, rel=1e-3)
