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

__all__ = [
    "claim_checkpoints",
    "discard_checkpoint",
    "discard_checkpoints",
    "get_step",
    "mark_complete",
    "read_position",
    "remove_mark",
]

_COMPLETE_FILE = "trainjob_complete"
_CHECKPOINT = re.compile(r"checkpoint-([0-9]{1,12})")  # transformers 5, trainer_utils.py, PREFIX_CHECKPOINT_DIR


def claim_checkpoints(
    output: Path,
    owner: CheckpointOwner,
    *,
    limit: int = KEPT,
    is_within: Callable[[Path], bool] = lambda _: True,
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

    Returns:
        The checkpoint; None to start from the beginning.

    Raises:
        OSError: the folder cannot be read or written.
    """
    reason, is_known = find_reason(output, owner), (output / TRAINING_FILE).is_file()
    for checkpoint in _list_checkpoints(output):
        mark = read_object(checkpoint / _COMPLETE_FILE)
        if not mark and is_known:
            _remove(checkpoint, "its save was not complete")
        elif mark.get("owner") != owner.digest or not is_within(checkpoint):
            _move(checkpoint, get_kept_folder(output, mark.get("owner")))
    for checkpoint in _list_checkpoints(get_kept_folder(output, owner.digest)):
        if is_within(checkpoint):
            _move(checkpoint, output)
    owner.record(output)
    kept = [checkpoint for folder in (output / KEPT_CHECKPOINTS).glob("*") for checkpoint in _list_checkpoints(folder)]
    others = keep_newest(sorted(kept, key=_get_time), output / KEPT_CHECKPOINTS, limit)
    for checkpoint in _list_checkpoints(output):
        if damage := find_damage(read_object(checkpoint / _COMPLETE_FILE), checkpoint):
            _remove(checkpoint, damage)
    last = max(_list_checkpoints(output), key=get_step, default=None)
    if last:
        print(f"continues from {read_position(last)}: {last} is complete", flush=True)
    elif reason:
        print(f"starts from the beginning, because {reason}{others}", flush=True)
    return last


def discard_checkpoints(output: Path, owner: str, *, limit: int = 0) -> None:
    """Remove the complete checkpoints of a training.

    Args:
        output: folder that the training writes to.
        owner: digest of the training.
        limit: number of checkpoints in the output folder that stay; the last ones.
    """
    for folder, kept in ((output, limit), (get_kept_folder(output, owner), 0)):
        own = [path for path in _list_checkpoints(folder) if read_object(path / _COMPLETE_FILE).get("owner") == owner]
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
    files = [path for path in checkpoint.rglob("*") if path.name != _COMPLETE_FILE]
    sync_paths([*files, checkpoint, checkpoint.parent])
    write_text(checkpoint / _COMPLETE_FILE, build_mark(owner, checkpoint, filter(Path.is_file, files)))


def remove_mark(checkpoint: Path) -> None:
    """Make a checkpoint unusable for resuming before its files are overwritten.

    Raises:
        OSError: the mark cannot be deleted.
    """
    with contextlib.suppress(FileNotFoundError):
        (checkpoint / _COMPLETE_FILE).unlink()


def read_position(checkpoint: Path) -> str:
    """Return step and attempt of a checkpoint, such as `step 400 of attempt 2`."""
    attempt = read_object(checkpoint / _COMPLETE_FILE).get("attempt")
    return f"step {get_step(checkpoint)}" + (f" of attempt {attempt}" if attempt else "")


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


def get_step(checkpoint: Path) -> int:
    """Return the number of steps done at a checkpoint, which its name has."""
    return int(checkpoint.name.rpartition("-")[2])


def _get_time(checkpoint: Path) -> float:
    with contextlib.suppress(OSError):
        return (checkpoint / _COMPLETE_FILE).stat().st_mtime
    return 0.0
