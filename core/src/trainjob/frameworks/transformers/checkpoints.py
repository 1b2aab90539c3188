"""Checkpoints of transformers' Trainer: complete ones, their owners, and those of other trainings.

transformers' Trainer writes a folder `checkpoint-N` after N steps. A complete one has the file `trainjob_complete` with
its owner and the sizes of all files. This file is written after everything else of the checkpoint is on disk. A run can
therefore resume from any checkpoint with this file, whenever it was killed.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable
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
from trainjob.frameworks.transformers.parent_checkpoint import (
    COMPLETE_FILE,
    choose_parent,
    describe_parent,
    describe_start,
    get_step,
)

__all__ = [
    "claim_checkpoints",
    "discard_checkpoint",
    "discard_checkpoints",
    "get_step",
    "has_complete_checkpoint",
    "is_of_another_training",
    "mark_complete",
    "read_position",
    "remove_mark",
]

_CHECKPOINT = re.compile(r"checkpoint-([0-9]{1,12})")  # transformers 5, trainer_utils.py, PREFIX_CHECKPOINT_DIR


def claim_checkpoints(
    output: Path,
    owner: CheckpointOwner,
    *,
    limit: int = KEPT,
    is_within: Callable[[Path], bool] = lambda _: True,
    fetched_from: str = "",
) -> Path | None:
    """Return the last complete checkpoint of a training, and make the output folder its own.

    Checkpoints of other trainings are moved aside, and this training's are moved back. Incomplete and damaged ones are
    removed. The function may be killed at any point and called again. It prints what it decides.

    Args:
        output: folder that the training writes to.
        owner: the training.
        limit: number of checkpoints of other trainings that are kept; the newest ones.
        is_within: function that returns whether a checkpoint is within the length of the training. Others are moved
            aside, too.
        fetched_from: address of the store from which the last checkpoint was just fetched, for the log; else empty.

    Returns:
        The checkpoint, which is of another training if this one has none and its request has `resume_from`; None to
        start from the beginning.

    Raises:
        InvalidSpec: there is no checkpoint that `resume_from` names, or its state cannot be loaded.
        OSError: the folder cannot be read or written.
    """
    reason, is_known = find_reason(output, owner), (output / TRAINING_FILE).is_file()
    for checkpoint in _list_checkpoints(output):
        mark = read_object(checkpoint / COMPLETE_FILE)
        if not mark and is_known:
            _remove(checkpoint, "its save was not complete")
        elif mark.get("owner") != owner.digest or not is_within(checkpoint):
            _move(checkpoint, get_kept_folder(output, mark.get("owner")))
    for checkpoint in _list_checkpoints(get_kept_folder(output, owner.digest)):
        if is_within(checkpoint):
            _move(checkpoint, output)
    last = _find_last(output)
    parent = choose_parent(output, owner) if last is None and owner.resume_from is not None else None
    record = describe_parent(parent, owner) if parent else _read_parent(last)
    owner.record(output, record)
    kept = [checkpoint for folder in (output / KEPT_CHECKPOINTS).glob("*") for checkpoint in _list_checkpoints(folder)]
    kept = [checkpoint for checkpoint in kept if checkpoint != parent]  # needed until this training has its own
    others = keep_newest(sorted(kept, key=_get_time), output / KEPT_CHECKPOINTS, limit)
    if parent:
        print(describe_start(record), flush=True)
    elif last:
        origin = f", and was fetched from {fetched_from}" if fetched_from else ""
        print(f"continues from {read_position(last)}: {last} is complete{origin}", flush=True)
    elif reason:
        print(f"starts from the beginning, because {reason}{others}", flush=True)
    return last or parent


def has_complete_checkpoint(output: Path, owner: str, is_within: Callable[[Path], bool]) -> bool:
    """Return whether a training has a complete checkpoint from which it can continue.

    Those that were moved aside count, too.

    Args:
        output: folder that the training writes to.
        owner: digest of the training.
        is_within: function that returns whether a checkpoint is within the length of the training.
    """
    for folder in (output, get_kept_folder(output, owner)):
        for checkpoint in _list_checkpoints(folder):
            mark = read_object(checkpoint / COMPLETE_FILE)
            if mark.get("owner") == owner and not find_damage(mark, checkpoint) and is_within(checkpoint):
                return True
    return False


def discard_checkpoints(output: Path, owner: str, *, limit: int = 0) -> None:
    """Remove the complete checkpoints of a training.

    Args:
        output: folder that the training writes to.
        owner: digest of the training.
        limit: number of checkpoints in the output folder that stay; the last ones.
    """
    for folder, kept in ((output, limit), (get_kept_folder(output, owner), 0)):
        own = [path for path in _list_checkpoints(folder) if read_object(path / COMPLETE_FILE).get("owner") == owner]
        for checkpoint in sorted(own, key=get_step)[: max(0, len(own) - kept)]:
            discard_checkpoint(checkpoint)


def discard_checkpoint(checkpoint: Path) -> None:
    """Remove a checkpoint, if it exists."""
    remove_mark(checkpoint)  # first, because the removal may be killed
    shutil.rmtree(checkpoint, ignore_errors=True)


def mark_complete(checkpoint: Path, owner: str) -> None:
    """Record that a checkpoint is complete, after all its files are on disk.

    A power loss of the node therefore never leaves a marked checkpoint with incomplete files.

    Raises:
        OSError: the folder cannot be written.
    """
    files = [path for path in checkpoint.rglob("*") if path.name != COMPLETE_FILE]
    sync_paths([*files, checkpoint, checkpoint.parent])
    training = read_object(checkpoint.parent / TRAINING_FILE)
    mark = build_mark(owner, checkpoint, filter(Path.is_file, files), training)
    write_text(checkpoint / COMPLETE_FILE, mark)


def is_of_another_training(checkpoint: Path, owner: str) -> bool:
    """Return whether a checkpoint has the mark of another training than the owner."""
    return read_object(checkpoint / COMPLETE_FILE).get("owner") not in (None, owner)


def remove_mark(checkpoint: Path) -> None:
    """Make a checkpoint unusable for resuming before its files are overwritten.

    Raises:
        OSError: the mark cannot be deleted.
    """
    with contextlib.suppress(FileNotFoundError):
        (checkpoint / COMPLETE_FILE).unlink()


def read_position(checkpoint: Path) -> str:
    """Return step and attempt of a checkpoint, such as `step 400 of attempt 2`."""
    attempt = read_object(checkpoint / COMPLETE_FILE).get("attempt")
    return f"step {get_step(checkpoint)}" + (f" of attempt {attempt}" if attempt else "")


def _find_last(output: Path) -> Path | None:
    """Return the last undamaged checkpoint of a folder, and remove damaged ones."""
    for checkpoint in _list_checkpoints(output):
        if damage := find_damage(read_object(checkpoint / COMPLETE_FILE), checkpoint):
            _remove(checkpoint, damage)
    return max(_list_checkpoints(output), key=get_step, default=None)


def _read_parent(checkpoint: Path | None) -> dict[str, Any]:
    """Return the record of the parent in a checkpoint's mark; empty without one."""
    parent = read_object(checkpoint / COMPLETE_FILE).get("parent") if checkpoint else None
    return parent if isinstance(parent, dict) else {}


def _list_checkpoints(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return [path for path in folder.iterdir() if _CHECKPOINT.fullmatch(path.name) and path.is_dir()]
    return []


def _move(checkpoint: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / checkpoint.name
    if target.exists():  # an older one of the same training and step
        remove_mark(target)
        shutil.rmtree(target)
    checkpoint.rename(target)


def _remove(checkpoint: Path, reason: str) -> None:
    print(f"removed {checkpoint}: {reason}", flush=True)
    discard_checkpoint(checkpoint)


def _get_time(checkpoint: Path) -> float:
    with contextlib.suppress(OSError):
        return (checkpoint / COMPLETE_FILE).stat().st_mtime
    return 0.0
