"""The learning rate schedule of a resumed training.

Some recipes restart their schedule when they resume (torchtune 0.6.1: recipes/lora_finetune_single_device.py,
lora_dpo_single_device.py, knowledge_distillation_*.py, which set `global_step` for a limited epoch only).
"""

from __future__ import annotations

from typing import Any

from torchtune.training.lr_schedulers import get_cosine_schedule_with_warmup

__all__ = ["get_resumed_cosine_schedule"]


def get_resumed_cosine_schedule(
    optimizer: Any, num_training_steps: int, last_epoch: int, *, epochs: int, epochs_done: int, **options: Any
) -> Any:
    """Return TorchTune's cosine schedule, from the first step of the next epoch on.

    All LoRA configurations of TorchTune use this schedule.

    Args:
        optimizer: the optimizer with the saved state.
        num_training_steps: number of steps in the whole training.
        last_epoch: the last step as the recipe counts it; not used.
        epochs: number of epochs in the whole training.
        epochs_done: number of epochs that are done.
        **options: other arguments of the schedule.
    """
    last_epoch = num_training_steps // epochs * epochs_done - 1
    return get_cosine_schedule_with_warmup(
        optimizer, num_training_steps=num_training_steps, last_epoch=last_epoch, **options
    )
