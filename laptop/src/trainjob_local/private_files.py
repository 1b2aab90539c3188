"""Files that only their owner can read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

__all__ = ["read_or_create", "write_private"]


def read_or_create(path: Path, make: Callable[[], str]) -> str:
    """Return the content of a file; if it does not exist, write it first.

    Args:
        path: the file in the state folder, which an earlier cluster may have written.
        make: function that returns the content of a new file.
    """
    if not path.exists():
        write_private(path, make())
    return path.read_text()


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, with an atomic rename.

    No reader sees an incomplete file.
    """
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    new.replace(path)
