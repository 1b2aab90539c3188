"""Search for the final checkpoint of a TorchTune run; an incomplete one is refused.

Source: torchtune 0.6.1 `training/checkpointing/_checkpointer.py`, FullModelHFCheckpointer.save_checkpoint. It writes a
folder `epoch_N` for every epoch. In this folder it first writes the shards, then their index, then the adapter and its
configuration, then copies of the base model's small files.
"""

from __future__ import annotations

import re
from pathlib import Path

from trainjob.errors import ExportError
from trainjob.frameworks.torchtune.finished_run.run_files import RunConfiguration, read_configuration
from trainjob.programs.export.checkpoint import (
    ADAPTER_CONFIG,
    WEIGHTS_INDEX,
    Checkpoint,
    find_adapter,
    find_shards,
    list_names,
)
from trainjob.programs.export.weights import torch_dtype

__all__ = ["find_checkpoint", "get_last_write"]

_TORCH_INDEX = "pytorch_model.bin.index.json"
_EPOCH = re.compile(r"epoch_(\d+)")
_CLOCK_SLACK = 2.0  # seconds; file systems round times


def get_last_write(output: Path) -> float:
    """Return the time at which a TorchTune run last wrote to `output`.

    The time is in seconds since 1970; 0.0 if no run of TorchTune wrote there.
    """
    epochs = [path.stat().st_mtime for path in _list_epochs(output).values()]
    return max([read_configuration(output).started_at, *epochs])


def find_checkpoint(output: Path, adapter: str = "merge") -> Checkpoint:
    """Return the last epoch of the run that last wrote to `output`.

    The number of epochs comes from the run's own configuration. Without this, `epoch_9` could win over `epoch_10`, or
    an epoch of an earlier, longer run in the same folder could be taken for the last. If the configuration is missing,
    the highest number counts.

    Args:
        output: folder that the run wrote to.
        adapter: `keep` for the adapter of a LoRA run; `merge` for the merged weights, or for the adapter if the run
            saved nothing else.

    Raises:
        ExportError: there is no checkpoint or no adapter, the run did not finish, or a file of it is missing or cut
            short; the message lists the files that exist.
    """
    epochs = _list_epochs(output)
    if not epochs:
        raise ExportError(
            f"{output} contains no checkpoint (no folder epoch_N); found: {list_names(output)}",
            hint="let the fine-tune step end before the export",
        )
    record = read_configuration(output)
    last = max(epochs) if record.epochs is None else record.epochs - 1
    if last not in epochs:
        raise ExportError(
            f"the run in {output} did not finish: epoch_{last} is missing, the last one saved is epoch_{max(epochs)}",
            hint="let the fine-tune step end before the export",
        )
    folder = epochs[last]
    adapter_only = record.adapter_only or (
        not (folder / WEIGHTS_INDEX).is_file() and (folder / ADAPTER_CONFIG).is_file()
    )
    if adapter == "keep" and not adapter_only:
        _check_has_adapter(folder)
    as_adapter = adapter_only or adapter == "keep"
    weights = _find_adapter(folder) if as_adapter else _find_model(folder)
    _check_age(folder, weights, record)
    # It copies the base model's files, except those of more than 100 MB, such as a tokenizer
    # (torchtune 0.6.1, training/checkpointing/_utils.py, copy_files).
    kind = "adapter" if as_adapter else "model"
    return Checkpoint(folder, last, kind, weights, torch_dtype(weights), framework="torchtune", has_base_files=True)


def _list_epochs(output: Path) -> dict[int, Path]:
    return {
        int(match[1]): path for path in output.iterdir() if (match := _EPOCH.fullmatch(path.name)) and path.is_dir()
    }


def _find_model(folder: Path) -> tuple[Path, ...]:
    index = folder / WEIGHTS_INDEX
    if (folder / _TORCH_INDEX).is_file() and not index.is_file():
        raise ExportError(
            f"{folder} contains pickled weights (.bin)", hint="train with checkpointer.safe_serialization=True"
        )
    if not index.is_file():
        raise ExportError(
            f"{folder} is not complete: no {WEIGHTS_INDEX}, which comes after the weights; found: {list_names(folder)}",
            hint="the run was killed while it saved, or its checkpointer is not FullModelHFCheckpointer",
        )
    return find_shards(index)


def _find_adapter(folder: Path) -> tuple[Path, ...]:
    return find_adapter(
        folder, "the run was killed while it saved, or TorchTune can't save this model's adapters for Hugging Face"
    )


def _check_has_adapter(folder: Path) -> None:
    """Refuse a folder whose weights no LoRA run saved.

    An earlier LoRA run may have left its adapter there. It is older than the index, because TorchTune writes the
    adapter after the index.
    """
    index = folder / WEIGHTS_INDEX
    saved = index.stat().st_mtime if index.is_file() else 0.0
    if not any(path.stat().st_mtime + _CLOCK_SLACK >= saved for path in folder.glob("adapter_*")):
        raise ExportError(
            f"{folder} contains no adapter: the run trained all weights, or merged them without saving the adapter",
            hint='omit adapter="keep" to export the model',
        )


def _check_age(folder: Path, weights: tuple[Path, ...], record: RunConfiguration) -> None:
    saved = max(path.stat().st_mtime for path in weights)
    if saved + _CLOCK_SLACK < record.started_at and not record.resumed:
        raise ExportError(
            f"an earlier run saved {folder}: the last run in this folder started later and did not save this epoch",
            hint="let the fine-tune step end before the export",
        )
