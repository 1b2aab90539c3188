"""Reading plain dicts that somebody else wrote: what is missing, or is of another type, reads as empty.

The API server checks what it stores, but labels and annotations are anybody's text, and a proxy or a changed CRD may
give anything: what an object means is never an exception.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_EMPTY: Mapping[str, Any] = {}


def table(value: Any, *path: str) -> Mapping[str, Any]:
    """The object at a path of keys."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else _EMPTY


def rows(value: Any, *path: str) -> list[Mapping[str, Any]]:
    """The objects of the list at a path of keys."""
    found = table(value, *path[:-1]).get(path[-1])
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list | tuple) else []


def text(value: Any, *path: str) -> str:
    """The text at a path of keys."""
    found = table(value, *path[:-1]).get(path[-1])
    return found if isinstance(found, str) else ""


def number(value: Any, *path: str) -> int:
    """The whole number at a path of keys, also when it is written as text, as labels are."""
    found = table(value, *path[:-1]).get(path[-1])
    if isinstance(found, str) and found.isascii() and found.isdigit() and len(found) < 19:
        return int(found)
    return found if isinstance(found, int) else 0


def true_conditions(item: Any) -> dict[str, Mapping[str, Any]]:
    """The conditions of an object's status that hold, by type."""
    return {text(one, "type"): one for one in rows(item, "status", "conditions") if one.get("status") == "True"}
