"""Functions that read plain dicts of any origin.

A value that is missing, or is of another type, reads as empty. The API server checks the objects that it stores. But
labels and annotations hold any text, and a proxy or a changed CRD may return anything. So reading an object never
raises an exception.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

_EMPTY: Mapping[str, Any] = {}
_OBJECT = (dict, Mapping)  # a dict is recognized without the slow check of an abstract class


def get_mapping(value: Any, *path: str) -> Mapping[str, Any]:
    """Return the object at a path of keys, or an empty one."""
    for key in path:
        value = value.get(key) if isinstance(value, _OBJECT) else None
    return value if isinstance(value, _OBJECT) else _EMPTY


def get_list(value: Any, *path: str) -> list[Mapping[str, Any]]:
    """Return the objects of the list at a path of keys, or an empty list."""
    found = get_mapping(value, *path[:-1]).get(path[-1])
    return [item for item in found if isinstance(item, _OBJECT)] if isinstance(found, list | tuple) else []


def get_str(value: Any, *path: str) -> str:
    """Return the string at a path of keys, or an empty string."""
    found = get_mapping(value, *path[:-1]).get(path[-1])
    return found if isinstance(found, str) else ""


def get_int(value: Any, *path: str) -> int:
    """Return the integer at a path of keys, or 0.

    The value may also be a string of digits, as in labels.
    """
    found = get_mapping(value, *path[:-1]).get(path[-1])
    if isinstance(found, str) and found.isascii() and found.isdigit() and len(found) < 19:
        return int(found)
    return found if isinstance(found, int) else 0


def contains(value: Any, part: Any) -> bool:
    """Return whether a JSON value has everything of another one; it may have more keys.

    The API server adds keys with defaults to an object. Lists must have the same length.
    """
    if isinstance(part, Mapping):
        return isinstance(value, Mapping) and all(name in value and contains(value[name], part[name]) for name in part)
    if isinstance(part, list | tuple):
        return isinstance(value, list) and len(value) == len(part) and all(map(contains, value, part))
    return bool(value == part)


def true_conditions(item: Any) -> dict[str, Mapping[str, Any]]:
    """Return the true conditions of an object's status, by type."""
    return {
        get_str(each, "type"): each for each in get_list(item, "status", "conditions") if each.get("status") == "True"
    }


def parse_time(text: str) -> datetime | None:
    """Return the time of a text in RFC 3339; None without a time or time zone."""
    try:
        time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return time if time.tzinfo else None
