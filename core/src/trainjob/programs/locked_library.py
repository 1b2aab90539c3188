"""Library of a tracker, a store or datasets: the image's, or an installation of the locked packages."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from trainjob.programs.pip_installation import install

__all__ = ["import_library"]


def import_library(name: str, lock: str) -> Any:
    """Import a library; install it with pip first if the image does not contain it.

    Args:
        name: name of the module, such as `mlflow`.
        lock: name below `trainjob` of the module with its locked packages.

    Raises:
        RuntimeError: pip failed; the message has the last line of its output.
        ImportError: the library cannot be imported.
        OSError: the packages cannot be written.
    """
    if not importlib.util.find_spec(name):
        _install(name, lock)
    try:
        return importlib.import_module(name)
    except BaseException:
        # Python keeps the parts that were imported, and the next try would fail with them.
        for module in [each for each in sys.modules if each == name or each.startswith(f"{name}.")]:
            del sys.modules[module]
        raise


def _install(name: str, lock: str) -> None:
    """Install a library into a new folder, and add the folder to the module search path."""
    requirements = importlib.import_module(f"trainjob.{lock}").REQUIREMENTS
    # dill, with which datasets computes digests, recognizes installed modules by this name (dill 0.4.1, _dill.py).
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-"), "site-packages")
    try:
        if failure := install(name, requirements, folder):
            first, *_, last = failure.splitlines()
            raise RuntimeError(
                f"the image does not contain {name}, and it cannot be installed (pip's variables, such as "
                f"PIP_INDEX_URL, may be set in env): {first}: {last}"
            )
    except BaseException:
        shutil.rmtree(folder.parent, ignore_errors=True)  # the next try creates another folder
        raise
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
