"""Client library of a tracker: the image's, or an installation of the locked packages."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import Any

from trainjob.frameworks.pip_installation import install

__all__ = ["import_library"]


def import_library(name: str) -> Any:
    """Import a tracker's library; install it with pip first if the image does not contain it.

    Args:
        name: name of the module, such as `mlflow`.

    Raises:
        RuntimeError: pip failed; the message has the last lines of its output.
        ImportError: the library cannot be imported.
        OSError: the packages cannot be written.
    """
    if not importlib.util.find_spec(name):
        lock = importlib.import_module(f"trainjob.frameworks.tracking.locks.{name.lower()}")
        folder = Path(tempfile.mkdtemp(prefix="tracking-")) / "packages"
        if failure := install(name, lock.REQUIREMENTS, folder):
            raise RuntimeError(
                f"the image does not contain {name}, and it cannot be installed (pip's variables, such as "
                f"PIP_INDEX_URL, may be set in env): {failure}"
            )
        sys.path.insert(0, str(folder))
        importlib.invalidate_caches()
    return importlib.import_module(name)
