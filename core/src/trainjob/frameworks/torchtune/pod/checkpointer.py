"""A checkpointer for TorchTune that never leaves a run without a whole epoch to go on after.

TorchTune's own writes the state of each epoch over that of the one before: who is killed meanwhile has neither
(torchtune 0.6.1, training/checkpointing/_checkpointer.py). It also keeps files that an earlier attempt has half copied.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from torchtune.training import FullModelHFCheckpointer

from trainjob.frameworks.torchtune.pod.epochs import STATES, state_file

__all__ = ["WholeEpochsCheckpointer"]


class WholeEpochsCheckpointer(FullModelHFCheckpointer):  # type: ignore[misc]
    """TorchTune's checkpointer for Hugging Face folders, with a state of its own for each epoch."""

    def save_checkpoint(self, state_dict: dict[str, Any], epoch: int, **how: Any) -> None:
        """Saves an epoch; the one before can be gone on from until this one can.

        After the last epoch there is nothing to go on with, and nothing is kept for that.

        Args:
            state_dict: weights, and the recipe's state.
            epoch: counted from 0.
            **how: TorchTune's own arguments.
        """
        folder, states = self._output_dir / f"epoch_{epoch}", self._output_dir / STATES
        shutil.rmtree(folder, ignore_errors=True)
        super().save_checkpoint(state_dict, epoch, **how)
        whole = state_file(self._output_dir, epoch)
        if how.get("intermediate_checkpoint"):
            written = states / "recipe_state.pt"
            _to_disk([*folder.rglob("*"), folder, self._output_dir, written])
            written.replace(whole)
            _to_disk([states])
        for older in states.glob("epoch_*.pt"):
            if older != whole:
                older.unlink()


def _to_disk(paths: list[Path]) -> None:
    """So that files are there before their names say so, also when the node loses its power."""
    for path in paths:
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
