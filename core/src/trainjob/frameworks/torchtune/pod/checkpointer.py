"""A checkpointer for TorchTune that keeps an epoch to resume from while it saves the next.

TorchTune's own checkpointer overwrites the state of the previous epoch with that of the current one. A run that is
killed meanwhile has neither (torchtune 0.6.1, training/checkpointing/_checkpointer.py). It also keeps files that an
earlier attempt copied only partly.
"""

from __future__ import annotations

import os
import shutil
from typing import Any

from torchtune.training import ADAPTER_KEY, MODEL_KEY, FullModelHFCheckpointer

from trainjob.errors import DIVERGED, Diverged
from trainjob.frameworks.folder_lease import continue_lease
from trainjob.frameworks.torchtune.pod.epochs import mark_complete, remove_states, state_file
from trainjob.heartbeats import begin

__all__ = ["ResumableCheckpointer"]


class ResumableCheckpointer(FullModelHFCheckpointer):  # type: ignore[misc]
    """TorchTune's checkpointer for Hugging Face folders, with a separate state for each epoch."""

    def __init__(self, *args: Any, **options: Any) -> None:
        """Create TorchTune's checkpointer; rank 0 keeps the lease of the output folder.

        Raises:
            OutputInUse: another training uses the folder.
        """
        super().__init__(*args, **options)
        begin()  # only for the stacks: the recipe writes its steps to the log
        if os.environ.get("RANK", "0") == "0":
            continue_lease(self._output_dir)

    def save_checkpoint(self, state_dict: dict[str, Any], epoch: int, **options: Any) -> None:
        """Save an epoch, and keep the previous epoch resumable until this one is complete.

        After the last epoch, all states for resuming are deleted, because nothing is left to resume.

        Args:
            state_dict: weights, and the recipe's state.
            epoch: number of the epoch, counted from 0.
            **options: TorchTune's own arguments.

        Raises:
            Diverged: a weight is not a finite number; nothing is saved.
        """
        _check_finite(state_dict, epoch)
        shutil.rmtree(self._output_dir / f"epoch_{epoch}", ignore_errors=True)
        super().save_checkpoint(state_dict, epoch, **options)
        if not options.get("intermediate_checkpoint"):
            remove_states(self._output_dir)
            return
        state = state_file(self._output_dir, epoch)
        state.with_suffix(".json").unlink(missing_ok=True)  # of an attempt that saved it before
        (state.parent / "recipe_state.pt").replace(state)
        mark_complete(self._output_dir, epoch)
        remove_states(self._output_dir, except_for=epoch)


def _check_finite(state_dict: dict[str, Any], epoch: int) -> None:
    weights = {name: tensor for key in (MODEL_KEY, ADAPTER_KEY) for name, tensor in state_dict.get(key, {}).items()}
    for name, tensor in weights.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise Diverged(f"{DIVERGED}: {name} has numbers that are not finite in epoch {epoch + 1}")
