"""Modules of training frameworks, found by their names.

A framework is a package with modules of fixed names: `framework` is required, the others are optional. Ours are in
`trainjob.frameworks`. Another package adds one by an entry point of the group `trainjob.frameworks`, such as
`line = "line_framework.framework:FRAMEWORK"`; its other modules are then `line_framework.log_parser` and so on.

Nothing is imported to find a module. Packed code has the entry points of its modules, so that the programs in pods find
them in the same way.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import pkgutil
from collections.abc import Iterable
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["GROUP", "list_entry_points", "list_modules", "list_own_frameworks", "load_modules"]

GROUP = "trainjob.frameworks"
"""Group of the entry points, and the package with the frameworks of `trainjob` itself."""
_log = logging.getLogger(__name__)


def list_entry_points() -> list[EntryPoint]:
    """Return the entry points by which other packages add frameworks; a name may repeat."""
    from importlib.metadata import entry_points

    return list(entry_points(group=GROUP))


@functools.cache
def list_own_frameworks() -> tuple[str, ...]:
    """Return the names of the frameworks of `trainjob` itself, in alphabetical order."""
    return tuple(module.split(".")[-2] for module in _list_own_modules("framework"))


@functools.cache
def list_modules(name: str) -> tuple[str, ...]:
    """Return the frameworks' modules of a name, ours first, then those of other packages.

    Each is an absolute name in alphabetical order, such as `line_framework.log_parser`.
    """
    packages = {entry.module.rpartition(".")[0] for entry in list_entry_points()} - {""}
    others = (f"{package}.{name}" for package in sorted(packages) if name in _list_names(_find_folders(package)))
    return (*_list_own_modules(name), *others)


@functools.cache
def load_modules(name: str, *, strict: bool = False) -> tuple[ModuleType, ...]:
    """Import and return the frameworks' modules of a name.

    Raises:
        ImportError: with `strict`, a module cannot be imported. Without it, the module is left out and logged, so that
            no package of others ends a wait.
    """
    loaded = []
    for module in list_modules(name):
        try:
            loaded.append(importlib.import_module(module))
        except Exception as error:
            text = f"{module} cannot be imported: {type(error).__name__}: {error}"
            if strict:
                raise ImportError(text) from error
            _log.warning("%s", text)
    return tuple(loaded)


def _list_own_modules(name: str) -> list[str]:
    own = list(importlib.import_module(GROUP).__path__)
    found = (each for each in _list_names(own) if name in _list_names(f"{folder}/{each}" for folder in own))
    return [f"{GROUP}.{each}.{name}" for each in sorted(found)]


def _list_names(folders: Iterable[str]) -> set[str]:
    return {found.name for found in pkgutil.iter_modules(list(folders))}


def _find_folders(package: str) -> list[str]:
    try:
        spec = importlib.util.find_spec(package)
    except Exception:  # noqa: BLE001 - the package above it may fail in any way
        return []
    return list(spec.submodule_search_locations or []) if spec else []
