"""Files of a training that are complete whenever it is killed: JSON records, and marks of complete checkpoints."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trainjob.job_variables import ATTEMPT_VARIABLE

__all__ = ["build_mark", "find_damage", "read_object", "sync_paths", "write_lines", "write_text"]


def build_mark(owner: str, folder: Path, files: Iterable[Path], training: Mapping[str, Any]) -> str:
    """Return the text of a mark: training, attempt, and the size of each file in bytes.

    Args:
        owner: digest of the training.
        folder: folder to which the names of the files are relative.
        files: files of the checkpoint.
        training: description of the training in the output folder; one of another owner is left out.
    """
    sizes = {str(path.relative_to(folder)): path.stat().st_size for path in sorted(files)}
    attempt = os.environ.get(ATTEMPT_VARIABLE, "")
    described = training if training.get("owner") == owner else {}
    return json.dumps({**described, "owner": owner, "attempt": attempt, "files": sizes}, indent=1)


def find_damage(mark: dict[str, Any], folder: Path) -> str:
    """Return which file of a marked checkpoint is missing or has another size; empty if none."""
    sizes = mark.get("files")
    for name, size in (sizes if isinstance(sizes, dict) else {}).items():
        try:
            found = (folder / name).stat().st_size
        except OSError:
            return f"{name} is missing"
        if found != size:
            return f"{name} has {found} of {size} bytes"
    return ""


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; empty if there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def write_text(path: Path, text: str) -> None:
    """Replace a file in one step: a reader sees the old text or the new one.

    Raises:
        OSError: the folder cannot be written.
    """
    write_lines(path, [text])


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Replace a file in one step by lines, which have their own line ends.

    Raises:
        OSError: the folder cannot be written.
    """
    written = path.with_name(f"{path.name}.new")
    with written.open("w", encoding="utf-8") as file:
        file.writelines(lines)
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
