"""A training with LLaMA-Factory that hangs in a save is found with its step and its place."""

from __future__ import annotations

import pytest

from tests.integration.llamafactory.tiny_llamafactory import tiny_config
from tests.support.hanging_trainings import check_hang, hanging_environment

__all__ = ["hanging_environment"]

pytestmark = [pytest.mark.llamafactory, pytest.mark.slow, pytest.mark.timeout(600, func_only=True)]


def test_a_save_that_hangs(run_training, hanging_environment):
    config = tiny_config(max_steps=12, save_steps=4)
    check_hang(run_training, hanging_environment, config, "checkpoint-8/trainer_state.json", step=8)
