"""Fetch of a folder or file by a program that does something else with it: a champion, or the code of a project."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainjob.programs.locked_library import import_library

__all__ = ["fetch"]

_STORES_OF_OPENDAL = ("s3", "gs", "az", "abfs", "abfss")
_LOCK = "frameworks.checkpoint_copies.lock"


def fetch(
    uri: str,
    command: Sequence[str],
    folder: Path,
    title: str,
    *,
    kind: str = "model",
    env: Mapping[str, str] | None = None,
) -> None:
    """Fetch files with the program of `InitializeModel`, which continues after a kill.

    Args:
        uri: the address.
        command: command of the fetch's program, without its arguments.
        folder: folder for the files.
        title: start of each line of its output.
        kind: `model` or `dataset`, which decides what a name without a scheme means.
        env: variables of the fetch's program besides those of this process.

    Raises:
        RuntimeError: the files cannot be fetched; the message has the last line of the output.
        ImportError: opendal cannot be imported.
        OSError: the fetch cannot be started.
    """
    if uri.partition("://")[0] in _STORES_OF_OPENDAL:
        import_library("opendal", _LOCK)
    path = os.pathsep.join(filter(None, sys.path))
    variables = {**os.environ, **(env or {}), "STORAGE_URI": uri, "PYTHONPATH": path}
    words = [sys.executable, *command[1:], "--kind", kind, "--folder", str(folder)]
    with subprocess.Popen(
        words, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as fetching:
        last = ""
        for line in fetching.stdout or ():
            last = line.strip() or last
            print(f"{title}: {line}", end="", flush=True)
    if fetching.returncode:
        raise RuntimeError(f"{uri} cannot be fetched: {last or f'exit code {fetching.returncode}'}")
