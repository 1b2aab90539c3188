"""Record of a run in its output folder: owner, parameters, and whether the run is complete."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trainjob.frameworks.durable_files import read_object, sync_paths, write_text

__all__ = ["RECORD_FILE", "UNMERGED", "read_record", "sync_files", "write_record"]

RECORD_FILE = "trainjob_run.json"
"""File in the output folder that describes the run that last wrote to this folder; the export reads it."""

UNMERGED = "unmerged"
"""Entry of the record: why a complete run has no merged model, although its request wants one."""


def read_record(output: Path) -> dict[str, Any]:
    """Return the record of the run that last wrote to a folder; empty without one."""
    return read_object(output / RECORD_FILE)


def write_record(output: Path, record: Mapping[str, Any]) -> None:
    """Replace the record of a folder.

    Raises:
        OSError: the folder cannot be written.
    """
    output.mkdir(parents=True, exist_ok=True)
    write_text(output / RECORD_FILE, json.dumps(dict(record), indent=2, sort_keys=True) + "\n")


def sync_files(folder: Path, subfolders: Iterable[str] = ()) -> None:
    """Wait until the files at the top of a folder, and all in given subfolders, are on disk.

    Raises:
        OSError: a file cannot be read.
    """
    below = [path for name in subfolders for path in (folder / name, *(folder / name).rglob("*"))]
    sync_paths([*(path for path in folder.iterdir() if path.is_file()), *below, folder])
