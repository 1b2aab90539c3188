"""A checkpointer for TorchTune that keeps an epoch to resume from while it saves the next.

TorchTune's own checkpointer overwrites the state of the previous epoch with that of the current one. A run that is
killed meanwhile has neither (torchtune 0.6.1, training/checkpointing/_checkpointer.py). It also keeps files that an
earlier attempt copied only partly.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from torchtune.training import ADAPTER_KEY, MODEL_KEY, FullModelHFCheckpointer

from trainjob.errors import DIVERGED, Diverged
from trainjob.frameworks.torchtune.pod.epochs import STATE_FOLDER, state_file

__all__ = ["ResumableCheckpointer"]


class ResumableCheckpointer(FullModelHFCheckpointer):  # type: ignore[misc]
    """TorchTune's checkpointer for Hugging Face folders, with a separate state for each epoch."""

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
        folder, states = self._output_dir / f"epoch_{epoch}", self._output_dir / STATE_FOLDER
        shutil.rmtree(folder, ignore_errors=True)
        super().save_checkpoint(state_dict, epoch, **options)
        complete = state_file(self._output_dir, epoch)
        if options.get("intermediate_checkpoint"):
            written = states / "recipe_state.pt"
            _sync_paths([*folder.rglob("*"), folder, self._output_dir, written])
            written.replace(complete)
            _sync_paths([states])
        for older in states.glob("epoch_*.pt"):
            if older != complete:
                older.unlink()


def _check_finite(state_dict: dict[str, Any], epoch: int) -> None:
    weights = {name: tensor for key in (MODEL_KEY, ADAPTER_KEY) for name, tensor in state_dict.get(key, {}).items()}
    for name, tensor in weights.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise Diverged(f"{DIVERGED}: {name} has numbers that are not finite in epoch {epoch + 1}")


def _sync_paths(paths: list[Path]) -> None:
    """Wait until files are on disk.

    The state gets its final name only after that. A power loss of the node therefore never leaves a state with that
    name and incomplete files.
    """
    for path in paths:
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
