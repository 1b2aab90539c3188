"""The learning rate of a resumed training.

Some recipes begin their schedule anew when they resume (torchtune 0.6.1: recipes/lora_finetune_single_device.py,
lora_dpo_single_device.py, knowledge_distillation_*.py, where `global_step` is set for a limited epoch only).
"""

from __future__ import annotations

from typing import Any

from torchtune.training.lr_schedulers import get_cosine_schedule_with_warmup

__all__ = ["resumed_cosine"]


def resumed_cosine(
    optimizer: Any, num_training_steps: int, last_epoch: int, *, epochs: int, epochs_done: int, **shape: Any
) -> Any:
    """TorchTune's cosine schedule, which all its LoRA configurations have, from the first step of the next epoch on.

    Args:
        optimizer: with the state that was saved.
        num_training_steps: in the whole training.
        last_epoch: what the recipe takes for the last step; not used.
        epochs: in the whole training.
        epochs_done: how many of them are done.
        **shape: of the schedule.
    """
    last_epoch = num_training_steps // epochs * epochs_done - 1
    return get_cosine_schedule_with_warmup(
        optimizer, num_training_steps=num_training_steps, last_epoch=last_epoch, **shape
    )
