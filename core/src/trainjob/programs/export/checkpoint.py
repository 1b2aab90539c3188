"""Search for the final checkpoint of a TorchTune run; an incomplete one is refused.

Source: torchtune 0.6.1 `training/checkpointing/_checkpointer.py`, FullModelHFCheckpointer.save_checkpoint. It writes a
folder `epoch_N` for every epoch. In this folder it first writes the shards, then their index, then the adapter and its
configuration, then copies of the base model's small files.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from trainjob.errors import ExportError
from trainjob.programs.export.run_record import RunRecord, read_run_record
from trainjob.programs.export.weights import torch_dtype
from trainjob.programs.fetch.names import check_names

__all__ = ["ADAPTER_CONFIG", "ADAPTER_WEIGHTS", "WEIGHTS_INDEX", "Checkpoint", "find_checkpoint"]

WEIGHTS_INDEX = "model.safetensors.index.json"
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
_TORCH_INDEX = "pytorch_model.bin.index.json"
_EPOCH = re.compile(r"epoch_(\d+)")
_CLOCK_SLACK = 2.0  # seconds; file systems round times


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint.

    Attributes:
        folder: the checkpoint's folder `epoch_N`.
        epoch: N, counted from 0.
        kind: `model` for full (or merged) weights, `adapter` for adapter weights alone.
        weights: the safetensors files, ordered by name.
        dtype: the weights' data type by torch's name; empty if torch's configurations have no name for it.
    """

    folder: Path
    epoch: int
    kind: str
    weights: tuple[Path, ...]
    dtype: str


def find_checkpoint(output: Path) -> Checkpoint:
    """Return the last epoch of the run that last wrote to `output`.

    The number of epochs comes from the run's own configuration. Without this, `epoch_9` could win over `epoch_10`, or
    an epoch of an earlier, longer run in the same folder could be taken for the last. If the configuration is missing,
    the highest number counts.

    Raises:
        ExportError: there is no checkpoint, the run did not finish, or a file of it is missing or cut short; the
            message lists the files that exist.
    """
    epochs = _epochs(output)
    record = read_run_record(output)
    last = max(epochs) if record.epochs is None else record.epochs - 1
    if last not in epochs:
        raise ExportError(
            f"the run in {output} did not finish: epoch_{last} is missing, the last one saved is epoch_{max(epochs)}",
            hint="let the fine-tune step end before the export",
        )
    folder = epochs[last]
    adapter = record.adapter_only or (not (folder / WEIGHTS_INDEX).is_file() and (folder / ADAPTER_CONFIG).is_file())
    weights = _adapter(folder) if adapter else _shards(folder)
    _check_age(folder, weights, record)
    return Checkpoint(folder, last, "adapter" if adapter else "model", weights, torch_dtype(weights))


def _epochs(output: Path) -> dict[int, Path]:
    if not output.is_dir():
        raise ExportError(
            f"{output} is not a folder",
            hint="export from the workspace that the fine-tune step wrote to, after it has ended",
        )
    found = {
        int(match[1]): path for path in output.iterdir() if (match := _EPOCH.fullmatch(path.name)) and path.is_dir()
    }
    if not found:
        raise ExportError(
            f"{output} contains no checkpoint (no folder epoch_N); found: {_listing(output)}",
            hint="export from the workspace that the fine-tune step wrote to, after it has ended",
        )
    return found


def _shards(folder: Path) -> tuple[Path, ...]:
    if (folder / _TORCH_INDEX).is_file() and not (folder / WEIGHTS_INDEX).is_file():
        raise ExportError(
            f"{folder} contains pickled weights (.bin)", hint="train with checkpointer.safe_serialization=True"
        )
    if not (folder / WEIGHTS_INDEX).is_file():
        raise ExportError(
            f"{folder} is not complete: no {WEIGHTS_INDEX}, which comes after the weights; found: {_listing(folder)}",
            hint="the run was killed while it saved, or its checkpointer is not FullModelHFCheckpointer",
        )
    names = sorted(set(_weight_map(folder / WEIGHTS_INDEX).values()))
    missing = [name for name in names if not (folder / name).is_file()]
    if missing or not names:
        raise ExportError(
            f"{folder} is not complete: {', '.join(missing) or 'weights'} missing; found: {_listing(folder)}"
        )
    return tuple(folder / name for name in names)


def _weight_map(index: Path) -> dict[str, str]:
    try:
        found = {str(tensor): os.fspath(file) for tensor, file in json.loads(index.read_bytes())["weight_map"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ExportError(
            f"{index} is not an index of weights", hint="the run was killed while it saved; train again"
        ) from None
    # Readers open the files that the index names; TorchTune only names files in the same folder.
    check_names(set(found.values()), str(index), ExportError, hint="train again")
    if elsewhere := [file for file in found.values() if "/" in file]:
        raise ExportError(f"{index} names a file in another folder: {elsewhere[0][:200]!r}")
    return found


def _adapter(folder: Path) -> tuple[Path, ...]:
    missing = [name for name in (ADAPTER_WEIGHTS, ADAPTER_CONFIG) if not (folder / name).is_file()]
    if missing:
        raise ExportError(
            f"{folder} contains an adapter without {' and '.join(missing)}; found: {_listing(folder)}",
            hint="the run was killed while it saved, or TorchTune can't save this model's adapters for Hugging Face",
        )
    return (folder / ADAPTER_WEIGHTS,)


def _check_age(folder: Path, weights: tuple[Path, ...], record: RunRecord) -> None:
    saved = max(path.stat().st_mtime for path in weights)
    if saved + _CLOCK_SLACK < record.started_at and not record.resumed:
        raise ExportError(
            f"an earlier run saved {folder}: the last run in this folder started later and did not save this epoch",
            hint="let the fine-tune step end before the export",
        )


def _listing(folder: Path, limit: int = 12) -> str:
    names = sorted(path.name for path in folder.iterdir())
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return (", ".join(names[:limit]) or "nothing") + more
