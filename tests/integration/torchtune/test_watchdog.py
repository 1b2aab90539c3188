"""A training with TorchTune that hangs in a save is found with the step of its log and its place."""

from __future__ import annotations

import pytest

from tests.integration.torchtune.tiny_trainings import tiny_config
from tests.support.hanging_trainings import check_hang, hanging_environment

__all__ = ["hanging_environment"]

pytestmark = [pytest.mark.torchtune, pytest.mark.slow, pytest.mark.timeout(600, func_only=True)]


def test_a_save_that_hangs(run_training, hanging_environment):
    config = tiny_config(epochs=2, max_steps_per_epoch=6)
    check_hang(run_training, hanging_environment, config, "epoch_1/model.safetensors.index.json", step=12)
