"""Search for the final model of a run with a record; an incomplete one is refused.

The run saves the model, or the adapter of LoRA, into the output folder itself. After the adapter, it saves the merged
model into the folder `merged`, unless the user disabled this. transformers' checkpoints (`checkpoint-N`) are for
resuming, and are never exported. Source: transformers 5.23 `trainer.py`, `modeling_utils.py`, save_pretrained.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from trainjob.errors import ExportError
from trainjob.programs.export.checkpoint import (
    ADAPTER_WEIGHTS,
    MODEL_WEIGHTS,
    WEIGHTS_INDEX,
    Checkpoint,
    find_adapter,
    find_shards,
    list_names,
)
from trainjob.programs.export.run_record import RunRecord
from trainjob.programs.export.weights import torch_dtype

__all__ = ["MERGED_FOLDER", "find_checkpoint"]

MERGED_FOLDER = "merged"
_CHECKPOINT = re.compile(r"checkpoint-(\d{1,18})")
_CLOCK_SLACK = 2.0  # seconds; file systems round times
_SAVED_PARTLY = "files were removed after the training; train again"


def find_checkpoint(output: Path, record: RunRecord, adapter: str = "merge") -> Checkpoint:
    """Return the final model, or the adapter, of the run in `output`.

    Args:
        output: folder that the run wrote to.
        record: the run's record.
        adapter: `keep` for the adapter of a LoRA run; `merge` for the merged model, or for the adapter if the run has
            no merged model.

    Raises:
        ExportError: the run did not finish, has no adapter, or did not merge it, or a file is missing or cut short.
    """
    if not record.complete:
        raise ExportError(
            f"the run in {output} did not finish: {_describe_last_checkpoint(output)}",
            hint="let the fine-tune step end before the export",
        )
    if not record.adapter:
        if adapter == "keep":
            raise ExportError(
                f"the run in {output} has no adapter, because it trained all weights",
                hint='omit adapter="keep" to export the model',
            )
        return replace(_build(output, "model", _find_model(output, record.folders), record), folders=record.folders)
    weights = find_adapter(output, _SAVED_PARTLY)
    if adapter == "merge" and record.unmerged:
        raise ExportError(
            f"the adapter in {output} is trained, but not merged: {record.unmerged}",
            hint='run the fine-tune step again, which only merges, or export the adapter alone with adapter="keep"',
        )
    if adapter == "merge" and _has_merged_model(output):
        merged = output / MERGED_FOLDER
        return _build(merged, "model", _find_model(merged), record)
    return _build(output, "adapter", weights, record)


def _build(folder: Path, kind: str, weights: tuple[Path, ...], record: RunRecord) -> Checkpoint:
    return Checkpoint(
        folder,
        record.epoch,
        kind,
        weights,
        torch_dtype(weights),
        framework=record.framework,
        method=record.method,
        step=record.step,
        library=record.library if kind == "model" else "",
    )


def _describe_last_checkpoint(output: Path) -> str:
    steps = [int(match[1]) for path in output.iterdir() if (match := _CHECKPOINT.fullmatch(path.name))]
    return f"its last checkpoint is checkpoint-{max(steps)}" if steps else "it saved no checkpoint"


def _has_merged_model(output: Path) -> bool:
    """Return whether the run saved a merged model.

    An earlier run may have left one there. It is older than the adapter, because a run merges the saved adapter.
    """
    saved = [path.stat().st_mtime for path in _list_weights(output / MERGED_FOLDER)]
    return bool(saved) and max(saved) + _CLOCK_SLACK >= (output / ADAPTER_WEIGHTS).stat().st_mtime


def _find_model(folder: Path, subfolders: Iterable[str] | None = None) -> tuple[Path, ...]:
    """Return the weights in a folder, which also has the model's subfolders.

    save_pretrained leaves an index of an earlier run beside a single file, and a single file of an earlier run beside
    an index. The newer one counts.
    """
    missing = [] if (folder / "config.json").is_file() else ["config.json"]
    found = _list_weights(folder)
    missing += [] if found else [f"{MODEL_WEIGHTS} or {WEIGHTS_INDEX}"]
    missing += [name for name in subfolders or () if not (folder / name).is_dir()]
    if missing:
        raise ExportError(
            f"{folder} is not complete: {' and '.join(missing)} missing; found: {list_names(folder)}",
            hint=_SAVED_PARTLY,
        )
    newest = max(found, key=lambda path: path.stat().st_mtime)
    return find_shards(newest) if newest.name == WEIGHTS_INDEX else (newest,)


def _list_weights(folder: Path) -> list[Path]:
    return [path for name in (MODEL_WEIGHTS, WEIGHTS_INDEX) if (path := folder / name).is_file()]
