"""Location of the packed code of a program, for the processes that it starts."""

from __future__ import annotations

from pathlib import Path

__all__ = ["find_packed_code"]


def find_packed_code() -> list[str]:
    """Return the zip file that contains this package, as a list for PYTHONPATH.

    The list is empty if the package is installed: other processes then import it without PYTHONPATH.
    """
    root = Path(__file__).absolute().parents[2]
    return [str(root)] if root.is_file() else []
