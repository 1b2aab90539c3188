"""A training with LLaMA-Factory whose loss or gradients are no finite numbers fails, and says since when."""

from __future__ import annotations

import pytest

from tests.integration.llamafactory.tiny_llamafactory import tiny_config
from tests.support.training_fixtures import check_divergence

pytestmark = [pytest.mark.llamafactory, pytest.mark.slow, pytest.mark.timeout(600, func_only=True)]

# Steps and logging steps. The second training ends before its third line.
CASES = {"many lines": (40, 1), "two lines": (8, 4)}


@pytest.mark.parametrize("case", CASES)
def test_a_diverged_training_fails(run_training, workspace, case):
    steps, logging_steps = CASES[case]
    arguments = {"max_grad_norm": 0.0, "logging_steps": logging_steps, "warmup_steps": 0}
    outcome, lines = run_training("run", tiny_config(max_steps=steps, learning_rate=1e8, arguments=arguments))
    check_divergence(outcome, lines, workspace / "output" / "run")
