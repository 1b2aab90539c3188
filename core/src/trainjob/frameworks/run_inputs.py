"""Identity of a training run and its input files, for the programs that decide in the pod whether to resume."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["compute_run_digest"]


def compute_run_digest(run: str, inputs: Sequence[Path]) -> str:
    """Return a digest that identifies a run and its inputs.

    It covers the run's text, and the names, sizes and modification times of all files that the run reads.

    Args:
        run: the run's own text; the same in all its attempts.
        inputs: folders or files; hidden files and folders in them do not count.
    """
    digest = hashlib.sha256(run.encode())
    for root in inputs:
        for path in sorted(_files(root)):
            found = path.stat()
            digest.update(f"{path.relative_to(root)}\0{found.st_size}\0{found.st_mtime_ns}\0".encode())
        digest.update(b"\0")
    return digest.hexdigest()


def _files(root: Path) -> Iterator[Path]:
    if root.is_file():
        yield root
    for folder, below, names in os.walk(root):
        below[:] = [name for name in below if not name.startswith(".")]
        yield from (path for name in names if not name.startswith(".") and (path := Path(folder, name)).is_file())
