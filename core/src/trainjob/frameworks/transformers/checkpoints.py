"""Marks of complete checkpoints.

transformers' Trainer writes a folder `checkpoint-N` after N steps. A complete one has the file `trainjob_complete` with
the owner of the run. This file is written after everything else of the checkpoint is on disk. A run can therefore
resume from any checkpoint with this file, whenever it was killed.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = [
    "find_last_checkpoint",
    "mark_complete",
    "read_text",
    "remove_mark",
    "remove_marks",
    "sync_paths",
    "write_text",
]

_COMPLETE_FILE = "trainjob_complete"
_CHECKPOINT = re.compile(r"checkpoint-([0-9]{1,12})")  # transformers 5, trainer_utils.py, PREFIX_CHECKPOINT_DIR


def find_last_checkpoint(output: Path, owner: str) -> Path | None:
    """Return the last complete checkpoint of an owner; None without one.

    Args:
        output: folder that the run writes to.
        owner: text that identifies the run and its inputs.
    """
    complete = [path for path in _find_checkpoints(output) if read_text(path / _COMPLETE_FILE) == owner]
    return max(complete, key=_step, default=None)


def mark_complete(checkpoint: Path, owner: str) -> None:
    """Record that a checkpoint is complete, after all its files are on disk.

    A power loss of the node therefore never leaves a marked checkpoint with incomplete files.

    Raises:
        OSError: the folder cannot be written.
    """
    sync_paths([*checkpoint.rglob("*"), checkpoint, checkpoint.parent])
    write_text(checkpoint / _COMPLETE_FILE, owner)


def remove_mark(checkpoint: Path) -> None:
    """Make a checkpoint unusable for resuming before its files are overwritten.

    Raises:
        OSError: the mark cannot be deleted.
    """
    with contextlib.suppress(FileNotFoundError):
        (checkpoint / _COMPLETE_FILE).unlink()


def remove_marks(output: Path) -> None:
    """Make all checkpoints of a folder unusable for resuming, before a run starts anew.

    Raises:
        OSError: a mark cannot be deleted.
    """
    for path in _find_checkpoints(output):
        remove_mark(path)


def read_text(path: Path) -> str:
    """Return the content of a file; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def write_text(path: Path, text: str) -> None:
    """Replace a file in one step: a reader sees the old text or the new one.

    Raises:
        OSError: the folder cannot be written.
    """
    written = path.with_name(f"{path.name}.new")
    with written.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    written.replace(path)
    sync_paths([path.parent])


def sync_paths(paths: Iterable[Path]) -> None:
    """Wait until files and folders are on disk.

    Raises:
        OSError: one of them cannot be opened.
    """
    for path in paths:
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _find_checkpoints(output: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from (path for path in output.iterdir() if _CHECKPOINT.fullmatch(path.name) and path.is_dir())


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])
