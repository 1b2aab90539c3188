"""Files with which a run records its owner, its end, and its complete checkpoints.

The output folder has `trainjob_run.json` with the run's owner, and whether the run is complete. Each complete
checkpoint has `trainjob_complete` with its owner. This file is written after everything else of the checkpoint is on
disk. A run can therefore resume from any checkpoint with this file, whenever it was killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = [
    "RECORD_FILE",
    "find_last_checkpoint",
    "mark_complete",
    "read_record",
    "remove_mark",
    "remove_marks",
    "sync_files",
    "write_record",
]

RECORD_FILE = "trainjob_run.json"
"""File in the output folder that describes the run that last wrote to this folder; the export reads it."""
_COMPLETE_FILE = "trainjob_complete"
_CHECKPOINT = re.compile(r"checkpoint-([0-9]{1,12})")  # transformers 5, trainer_utils.py, PREFIX_CHECKPOINT_DIR


def find_last_checkpoint(output: Path, owner: str) -> Path | None:
    """Return the last complete checkpoint of an owner's unfinished run.

    Args:
        output: folder that the run writes to.
        owner: digest of the run; see [trainjob.frameworks.run_inputs.compute_run_digest][].

    Returns:
        The folder; None if there is no such checkpoint, or the run is complete.
    """
    record = read_record(output)
    if record.get("owner") != owner or record.get("complete"):
        return None
    complete = [path for path in _find_checkpoints(output) if _read_text(path / _COMPLETE_FILE) == owner]
    return max(complete, key=_step, default=None)


def mark_complete(checkpoint: Path, owner: str) -> None:
    """Record that a checkpoint is complete, after all its files are on disk.

    A power loss of the node therefore never leaves a marked checkpoint with incomplete files.

    Raises:
        OSError: the folder cannot be written.
    """
    _sync_paths([*checkpoint.rglob("*"), checkpoint, checkpoint.parent])
    _write_text(checkpoint / _COMPLETE_FILE, owner)


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


def read_record(output: Path) -> dict[str, Any]:
    """Return the record of the run that last wrote to a folder; empty without one."""
    try:
        found = json.loads(_read_text(output / RECORD_FILE))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def write_record(output: Path, record: Mapping[str, Any]) -> None:
    """Replace the record of a folder.

    Raises:
        OSError: the folder cannot be written.
    """
    output.mkdir(parents=True, exist_ok=True)
    _write_text(output / RECORD_FILE, json.dumps(dict(record), indent=2, sort_keys=True) + "\n")


def sync_files(folder: Path) -> None:
    """Wait until the files at the top of a folder are on disk.

    Raises:
        OSError: a file cannot be read.
    """
    _sync_paths([*(path for path in folder.iterdir() if path.is_file()), folder])


def _find_checkpoints(output: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from (path for path in output.iterdir() if _CHECKPOINT.fullmatch(path.name) and path.is_dir())


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def _write_text(path: Path, text: str) -> None:
    """Replace a file in one step: a reader sees the old text or the new one."""
    written = path.with_name(f"{path.name}.new")
    with written.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    written.replace(path)
    _sync_paths([path.parent])


def _sync_paths(paths: list[Path]) -> None:
    for path in paths:
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
