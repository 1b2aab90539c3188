"""A training with LLaMA-Factory whose loss or gradients are no finite numbers fails, and says since when."""

from __future__ import annotations

import pytest

from tests.integration.llamafactory.tiny_llamafactory import tiny_config
from trainjob.errors import Diverged
from trainjob.status import Category

pytestmark = [pytest.mark.llamafactory, pytest.mark.slow, pytest.mark.timeout(600, func_only=True)]

# Steps and logging steps. The second training ends before its third line.
CASES = {"many lines": (40, 1), "two lines": (8, 4)}


@pytest.mark.parametrize("case", CASES)
def test_a_diverged_training_fails(run_training, workspace, case):
    steps, logging_steps = CASES[case]
    arguments = {"max_grad_norm": 0.0, "logging_steps": logging_steps, "warmup_steps": 0}
    outcome, lines = run_training("run", tiny_config(max_steps=steps, learning_rate=1e8, arguments=arguments))
    assert outcome.category is Category.DIVERGED, lines[-20:]
    with pytest.raises(Diverged) as raised:
        outcome.raise_for_failure()
    assert not raised.value.retryable
    assert [line for line in lines if "'loss': 'nan'" in line]  # not 0
    assert any("the training diverged: loss nan" in line for line in lines)
    assert not (workspace / "output" / "run" / "model.safetensors").exists()
