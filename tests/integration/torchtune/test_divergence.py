"""A training of TorchTune whose weights are no finite numbers fails, and leaves no checkpoint."""

from __future__ import annotations

import pytest

from tests.integration.torchtune.tiny_trainings import METHODS, tiny_config
from trainjob.errors import Diverged

pytestmark = [pytest.mark.torchtune, pytest.mark.slow, pytest.mark.timeout(600, func_only=True)]


@pytest.mark.parametrize("method", METHODS)
def test_a_diverged_training_fails(run_training, workspace, method):
    # LoRA that merges on a CPU cannot resume, and so has TorchTune's own checkpointer. Its export is refused.
    overrides = ("save_adapter_weights_only=True",) if method == "lora" else ()
    config = tiny_config(*overrides, epochs=1, max_steps_per_epoch=12, learning_rate=1e20, peft_config=METHODS[method])
    outcome, lines = run_training("run", config)
    with pytest.raises(Diverged) as raised:
        outcome.raise_for_failure()
    assert not raised.value.retryable
    assert any("numbers that are not finite in epoch 1" in line for line in lines)
    assert not list((workspace / "output" / "run").rglob("*.safetensors"))
