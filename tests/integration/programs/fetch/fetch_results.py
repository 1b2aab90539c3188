"""The files and the messages of a fetch."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from trainjob.programs.fetch.record import read_record


def read_receipt(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1].removeprefix("fetch: done "))
    return found


def read_contents(folder: Path) -> dict[str, bytes]:
    """Return the content of every file in a folder, except for hidden files and folders."""
    paths = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    return {name.as_posix(): path.read_bytes() for name, path in paths.items() if not name.parts[0].startswith(".")}


def read_all_paths(folder: Path) -> dict[str, bytes | None]:
    """Return all paths below a folder, with the contents of files, to notice any change."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")
    }


def is_complete(folder: Path) -> bool:
    return read_record(folder).complete


def failure_message(failed: subprocess.CompletedProcess[str]) -> str:
    """Return the message of a failure, which is one sentence with its advice."""
    assert failed.returncode in (1, 2), failed.stdout
    assert len(failed.stderr.splitlines()) <= 2, failed.stderr
    return failed.stderr
