"""Frameworks of other packages.

The name of a package's entry point is the framework's, and its object implements `trainjob.spec.framework.Framework`.
It is loaded when the first request uses it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainjob.framework_modules import GROUP, list_entry_points, list_own_frameworks
from trainjob.spec.base import invalid_field

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


@functools.cache
def load_framework(name: str, find_problem: Callable[[str, Any], str]) -> Any:
    """Return the framework that an installed package adds under a name.

    Args:
        name: the framework's name.
        find_problem: function that returns how the object of a name differs from the interface; empty if it implements
            it.

    Raises:
        InvalidSpec: no package adds the framework, or several do, or the package cannot be imported, or its object does
            not implement the interface. The field is `framework`.
    """
    found = list_entry_points()
    entries = [entry for entry in found if entry.name == name]
    if not entries:
        known = ", ".join(dict.fromkeys([*list_own_frameworks(), *(entry.name for entry in found)]))
        rule = (
            f"it must be one of {known}; for another one, install its package where this step runs: its entry point "
            f"of the group {GROUP} names it"
        )
        raise invalid_field("framework", name, rule)
    if len(entries) > 1:
        packages = " and ".join(sorted(_describe_package(entry) for entry in entries))
        raise invalid_field("framework", name, f"only one package may add it, but {packages} do: uninstall one of them")
    return _load(entries[0], find_problem)


def is_installed(name: str) -> bool:
    """Return whether an installed package adds a framework under a name."""
    return any(entry.name == name for entry in list_entry_points())


def _load(entry: EntryPoint, find_problem: Callable[[str, Any], str]) -> Any:
    package = _describe_package(entry)
    try:
        framework = entry.load()
    except Exception as error:  # a package may fail in any way
        rule = f"its package {package} cannot be loaded: {type(error).__name__}: {error}"
        raise invalid_field("framework", entry.name, rule) from error
    if problem := find_problem(entry.name, framework):
        raise invalid_field("framework", entry.name, f"{entry.value} of the package {package} {problem}")
    return framework


def _describe_package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value
