"""A training whose loss or gradients are no finite numbers fails, and says since when."""

from __future__ import annotations

import pytest

from tests.integration.trl.tiny_trl import tiny_config
from tests.support.training_fixtures import check_divergence

pytestmark = [pytest.mark.trl, pytest.mark.slow, pytest.mark.timeout(600, func_only=True)]

# Learning rate, steps and logging steps. The second training ends before its third line.
CASES = {"many lines": (1e8, 40, 1), "two lines": (1e8, 8, 4), "two processes": (1e8, 40, 2)}


@pytest.mark.parametrize("case", CASES)
def test_a_diverged_training_fails(run_training, workspace, case):
    learning_rate, steps, logging_steps = CASES[case]
    arguments = {"max_grad_norm": 0.0, "logging_steps": logging_steps, "warmup_steps": 0}
    processes = {"num_proc_per_node": 2} if case == "two processes" else {}
    config = tiny_config(max_steps=steps, learning_rate=learning_rate, arguments=arguments, **processes)
    outcome, lines = run_training("run", config)
    check_divergence(outcome, lines, workspace / "output" / "run")
