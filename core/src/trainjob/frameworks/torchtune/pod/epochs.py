"""Complete epochs of a run, and those of other trainings.

The folder `recipe_state` of a run's output contains two files for a complete epoch: `epoch_N.pt`, the state of the
optimizer and the recipe, and `epoch_N.json`, the mark with the owner and the sizes of all files to load. The mark is
written after everything else of its epoch is on disk. It is deleted when a later epoch is complete. A run can therefore
be resumed after any epoch with a mark, whenever it was killed.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainjob.frameworks.checkpoint_owner import (
    KEPT,
    KEPT_CHECKPOINTS,
    TRAINING_FILE,
    CheckpointOwner,
    find_reason,
    get_kept_folder,
    keep_newest,
)
from trainjob.frameworks.durable_files import build_mark, find_damage, read_object, sync_paths, write_text

__all__ = ["CompleteEpoch", "claim_epochs", "mark_complete", "remove_states", "state_file"]

# TorchTune's own name for the folder (torchtune 0.6.1, training/checkpointing/_utils.py, RECIPE_STATE_DIRNAME).
_STATE_FOLDER = "recipe_state"
_ADAPTER = "adapter_model.pt"
_INDEX = "model.safetensors.index.json"
_MARK = re.compile(r"epoch_([0-9]{1,9})\.json")


@dataclass(frozen=True)
class CompleteEpoch:
    """A complete epoch after which a run can be resumed.

    Attributes:
        number: number of the epoch, counted from 0 as in the name of its folder.
        attempt: attempt that saved it; empty if it is not known.
        files: files to load, relative to the output folder: an adapter, or the shards of the model.
    """

    number: int
    attempt: str
    files: tuple[str, ...]


def state_file(output: Path, epoch: int) -> Path:
    """Return the path of the recipe's state after a complete epoch."""
    return output / _STATE_FOLDER / f"epoch_{epoch}.pt"


def claim_epochs(output: Path, owner: CheckpointOwner, *, adapter: bool, epochs: int | None) -> CompleteEpoch | None:
    """Return the last complete epoch of a training, and make the output folder its own.

    Epochs of other trainings are moved aside, and this training's are moved back. The function may be killed at any
    point and called again. It prints what it decides.

    Args:
        output: folder that the training writes to.
        owner: the training.
        adapter: whether it trains an adapter instead of all weights.
        epochs: epochs of the whole training; None if they are not given.

    Returns:
        The epoch; None to start from the beginning.

    Raises:
        OSError: the folder cannot be read or written.
    """

    def is_within(number: int) -> bool:
        return epochs is None or number + 1 < epochs

    reason, kept = find_reason(output, owner), get_kept_folder(output, owner.digest)
    for number, mark in _find_marks(output):
        if mark.get("owner") != owner.digest or not is_within(number):
            _move(number, output, get_kept_folder(output, mark.get("owner")))
    for number, _ in _find_marks(kept):
        if is_within(number):
            _move(number, kept, output)
    owner.record(output)
    kept_trainings = [folder for folder in (output / KEPT_CHECKPOINTS).glob("*") if any(_find_marks(folder))]
    kept_trainings.sort(key=lambda folder: folder.stat().st_mtime)
    others = keep_newest(kept_trainings, output / KEPT_CHECKPOINTS, KEPT)
    last = _find_last(output, adapter=adapter)
    remove_states(output, except_for=last.number if last else None)
    if last:
        attempt = f" of attempt {last.attempt}" if last.attempt else ""
        # The message counts from 1: one epoch is done when epoch_0 is complete.
        print(f"continues from epoch {last.number + 1}{attempt}: {output}/epoch_{last.number} is complete", flush=True)
    elif reason:
        print(f"starts from the beginning, because {reason}{others}", flush=True)
    return last


def mark_complete(output: Path, epoch: int) -> None:
    """Record that an epoch is complete, after all its files are on disk.

    Raises:
        OSError: a file cannot be read or written.
    """
    folder, state = output / f"epoch_{epoch}", state_file(output, epoch)
    files = [path for path in folder.rglob("*") if path.is_file()]
    sync_paths([*files, folder, output, state, state.parent])
    training = read_object(output / TRAINING_FILE)
    mark = build_mark(str(training.get("owner")), output, [*files, state], training)
    write_text(state.with_suffix(".json"), mark)


def remove_states(output: Path, except_for: int | None = None) -> None:
    """Remove the states of all epochs, or of all but one."""
    for path in [*output.glob(f"{_STATE_FOLDER}/epoch_*.json"), *output.glob(f"{_STATE_FOLDER}/epoch_*.pt")]:
        if path.stem != f"epoch_{except_for}":
            path.unlink(missing_ok=True)


def _find_last(output: Path, *, adapter: bool) -> CompleteEpoch | None:
    number, mark = max(_find_marks(output), key=lambda found: found[0], default=(-1, {}))
    if number < 0 or (not adapter and _has_foreign_adapters(output)):
        return None
    if damage := find_damage(mark, output):
        print(f"{output}/epoch_{number} is not continued: {damage}", flush=True)
        return None
    names = [_ADAPTER] if adapter else _list_shards(output / f"epoch_{number}" / _INDEX)
    files = tuple(f"epoch_{number}/{name}" for name in names)
    is_complete = files and all((output / file).is_file() for file in files)
    return CompleteEpoch(number, str(mark.get("attempt") or ""), files) if is_complete else None


def _find_marks(output: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for path in list(output.glob(f"{_STATE_FOLDER}/epoch_*.json")):
        if (found := _MARK.fullmatch(path.name)) and (mark := read_object(path)):
            yield int(found[1]), mark


def _move(epoch: int, source: Path, target: Path) -> None:
    """Move the files of an epoch, its mark last, so that a killed move can be continued."""
    (target / _STATE_FOLDER).mkdir(parents=True, exist_ok=True)
    state = state_file(Path(), epoch)
    for path in (Path(f"epoch_{epoch}"), state, state.with_suffix(".json")):
        with contextlib.suppress(FileNotFoundError):
            if (source / path).is_dir():
                shutil.rmtree(target / path, ignore_errors=True)
            (source / path).rename(target / path)
    with contextlib.suppress(OSError):
        (source / _STATE_FOLDER).rmdir()
        source.rmdir()


def _has_foreign_adapters(output: Path) -> bool:
    """Return whether the output contains adapters of another run.

    TorchTune would load such an adapter with the model (0.6.1, _utils.py).
    """
    return any(output.glob(f"epoch_*/{_ADAPTER}"))


def _list_shards(index: Path) -> list[str]:
    try:
        return sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []
