"""Records of the complete epochs of a run, and of the run that owns them.

The folder `recipe_state` of a run's output contains two kinds of files: `run`, which identifies the owner of this
output, and `epoch_N.pt`, the state of the optimizer and the recipe after epoch N. A state gets this name after
everything else of its epoch is on disk. It is deleted when a later epoch is complete. A run can therefore be resumed
after any epoch with such a file, whenever it was killed.
"""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "STATE_FOLDER",
    "CompleteEpoch",
    "find_last_complete_epoch",
    "record_owner",
    "state_file",
]

STATE_FOLDER = "recipe_state"
"""TorchTune's own name for the folder (torchtune 0.6.1, training/checkpointing/_utils.py, RECIPE_STATE_DIRNAME)."""
_OWNER_FILE = "run"
_ADAPTER = "adapter_model.pt"
_INDEX = "model.safetensors.index.json"
_STATE_FILE = re.compile(r"epoch_([0-9]{1,9})\.pt")


@dataclass(frozen=True)
class CompleteEpoch:
    """A complete epoch after which a run can be resumed.

    Attributes:
        number: number of the epoch, counted from 0 as in the name of its folder.
        files: files to load, relative to the output folder: an adapter, or the shards of the model.
    """

    number: int
    files: tuple[str, ...]


def state_file(output: Path, epoch: int) -> Path:
    """Return the path of the recipe's state after a complete epoch."""
    return output / STATE_FOLDER / f"epoch_{epoch}.pt"


def find_last_complete_epoch(output: Path, owner: str, *, adapter: bool) -> CompleteEpoch | None:
    """Return the last complete epoch that this owner saved.

    Args:
        output: folder that the run writes to.
        owner: digest of the run; see [trainjob.frameworks.run_inputs.compute_run_digest][].
        adapter: whether the run trains an adapter instead of all weights.

    Returns:
        The epoch; None if the run cannot be resumed after any epoch.
    """
    try:
        if (output / STATE_FOLDER / _OWNER_FILE).read_text(encoding="utf-8") != owner:
            return None
    except OSError:
        return None
    numbers = [
        int(found[1]) for path in (output / STATE_FOLDER).iterdir() if (found := _STATE_FILE.fullmatch(path.name))
    ]
    if not numbers or (not adapter and _has_foreign_adapters(output)):
        return None
    epoch = max(numbers)
    names = [_ADAPTER] if adapter else _shards(output / f"epoch_{epoch}" / _INDEX)
    files = tuple(f"epoch_{epoch}/{name}" for name in names)
    return CompleteEpoch(epoch, files) if files and all((output / file).is_file() for file in files) else None


def _has_foreign_adapters(output: Path) -> bool:
    """Return whether the output contains adapters of another run.

    TorchTune would load such an adapter with the model (0.6.1, _utils.py).
    """
    return any(output.glob(f"epoch_*/{_ADAPTER}"))


def _shards(index: Path) -> list[str]:
    try:
        return sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def record_owner(output: Path, owner: str) -> None:
    """Record the owner of an output folder, and delete all states to resume from.

    Raises:
        OSError: the folder cannot be written.
    """
    states = output / STATE_FOLDER
    states.mkdir(parents=True, exist_ok=True)
    for state in states.glob("epoch_*.pt"):
        with contextlib.suppress(FileNotFoundError):
            state.unlink()
    written = states / f"{_OWNER_FILE}.new"
    written.write_text(owner, encoding="utf-8")
    written.replace(states / _OWNER_FILE)
