"""The folder of this project in the cache directory of the user."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_folder"]


def cache_folder() -> Path:
    """Return `$XDG_CACHE_HOME/trainjob`, by default `~/.cache/trainjob`; it may not exist.

    Raises:
        RuntimeError: this user has no home folder, and `XDG_CACHE_HOME` is not set.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainjob"
