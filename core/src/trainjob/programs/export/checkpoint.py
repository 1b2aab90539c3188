"""A complete checkpoint, and checks that none of its files is missing.

Source of the file names: transformers 5.23 `utils/__init__.py`, peft 0.21.2 `utils/constants.py`.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainjob.errors import ExportError
from trainjob.programs.fetch.names import check_names, join_names

__all__ = [
    "ADAPTER_CONFIG",
    "ADAPTER_WEIGHTS",
    "MODEL_WEIGHTS",
    "WEIGHTS_INDEX",
    "Checkpoint",
    "find_adapter",
    "find_shards",
    "list_names",
]

MODEL_WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint.

    Attributes:
        folder: folder of the weights.
        epoch: number of epochs trained, which may be a fraction; without a step, number of the epoch, counted from 0.
        kind: `model` for full (or merged) weights, `adapter` for adapter weights alone.
        weights: the safetensors files, ordered by name.
        dtype: the weights' data type by torch's name; empty if torch's configurations have no name for it.
        framework: name of the framework.
        method: the framework's method, such as `sft`; may be empty.
        step: number of steps trained; None if unknown.
        has_base_files: whether the framework copies the base model's files into the folder, except large ones. If not,
            the folder has the files that belong to the result, and others about the training.
        folders: names of the subfolders that belong to the model, with all their files. None means that the framework
            does not name them: then the model has none, and those of the base model are exported.
        library: name of the library that loads the model, as the hub writes it; empty for that of its kind.
    """

    folder: Path
    epoch: float
    kind: str
    weights: tuple[Path, ...]
    dtype: str
    framework: str
    method: str = ""
    step: int | None = None
    has_base_files: bool = False
    folders: tuple[str, ...] | None = None
    library: str = ""

    def uses_base_file(self, name: str) -> bool:
        """Return whether a file of the base model, by its relative path, may belong to the result."""
        return self.folders is None or "/" not in name

    @property
    def name(self) -> str:
        """Short name for a log line: `epoch_3`, or `step 44`."""
        return self.folder.name if self.step is None else f"step {self.step}"

    @property
    def description(self) -> str:
        """Position in the training, for people."""
        if self.step is None:
            return f"epoch {self.epoch}, counted from 0"
        return f"step {self.step}, epoch {self.epoch}"

    def to_dict(self) -> dict[str, Any]:
        """Return the manifest's entry `checkpoint`."""
        step = {} if self.step is None else {"step": self.step}
        return {**step, "epoch": self.epoch, "dtype": self.dtype}


def find_shards(index: Path) -> tuple[Path, ...]:
    """Return the weights that an index names, ordered by name.

    Raises:
        ExportError: the index is damaged, names a file in another folder, or names a file that is missing.
    """
    folder = index.parent
    names = sorted(set(_read_weight_map(index).values()))
    missing = [name for name in names if not (folder / name).is_file()]
    if missing or not names:
        raise ExportError(
            f"{folder} is not complete: {', '.join(missing) or 'weights'} missing; found: {list_names(folder)}"
        )
    return tuple(folder / name for name in names)


def _read_weight_map(index: Path) -> dict[str, str]:
    try:
        found = {str(tensor): os.fspath(file) for tensor, file in json.loads(index.read_bytes())["weight_map"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ExportError(
            f"{index} is not an index of weights", hint="the run was killed while it saved; train again"
        ) from None
    # Readers open the files that the index names; the frameworks only name files in the same folder.
    check_names(set(found.values()), str(index), ExportError, hint="train again")
    if elsewhere := [file for file in found.values() if "/" in file]:
        raise ExportError(f"{index} names a file in another folder: {elsewhere[0][:200]!r}")
    return found


def find_adapter(folder: Path, hint: str) -> tuple[Path, ...]:
    """Return the weights of the adapter in a folder.

    Args:
        folder: the folder.
        hint: the most likely reason if a file is missing.

    Raises:
        ExportError: the adapter's weights or configuration are missing.
    """
    missing = [name for name in (ADAPTER_WEIGHTS, ADAPTER_CONFIG) if not (folder / name).is_file()]
    if missing:
        raise ExportError(
            f"{folder} contains an adapter without {' and '.join(missing)}; found: {list_names(folder)}", hint=hint
        )
    return (folder / ADAPTER_WEIGHTS,)


def list_names(folder: Path, limit: int = 12) -> str:
    """Return the names in a folder for a message, at most `limit` of them."""
    return join_names(sorted(path.name for path in folder.iterdir()), limit) or "nothing"
