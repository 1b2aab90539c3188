"""Record of a run in its output folder: owner, parameters, and whether the run is complete."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainjob.frameworks.transformers import checkpoints

__all__ = ["RECORD_FILE", "UNMERGED", "find_checkpoint_of_run", "read_record", "sync_files", "write_record"]

RECORD_FILE = "trainjob_run.json"
"""File in the output folder that describes the run that last wrote to this folder; the export reads it."""

UNMERGED = "unmerged"
"""Entry of the record: why a complete run has no merged model, although its request wants one."""


def find_checkpoint_of_run(output: Path, owner: str) -> Path | None:
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
    return checkpoints.find_last_checkpoint(output, owner)


def read_record(output: Path) -> dict[str, Any]:
    """Return the record of the run that last wrote to a folder; empty without one."""
    try:
        found = json.loads(checkpoints.read_text(output / RECORD_FILE))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def write_record(output: Path, record: Mapping[str, Any]) -> None:
    """Replace the record of a folder.

    Raises:
        OSError: the folder cannot be written.
    """
    output.mkdir(parents=True, exist_ok=True)
    checkpoints.write_text(output / RECORD_FILE, json.dumps(dict(record), indent=2, sort_keys=True) + "\n")


def sync_files(folder: Path) -> None:
    """Wait until the files at the top of a folder are on disk.

    Raises:
        OSError: a file cannot be read.
    """
    checkpoints.sync_paths([*(path for path in folder.iterdir() if path.is_file()), folder])
