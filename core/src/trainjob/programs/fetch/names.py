"""Rules for file names of external origin.

Such names come from a store's listing, a record, an index, or an earlier manifest.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from itertools import pairwise

from trainjob.errors import TrainJobError

__all__ = ["broken_rule", "check_conflicts", "check_names", "first_conflict", "join_names"]

# Control characters, line and paragraph separators, lone surrogates: they break log lines, or are not valid UTF-8.
_UNPRINTABLE = ("Cc", "Zl", "Zp", "Cs")
_LONGEST_COMPONENT = 255  # bytes; NAME_MAX of Linux
_LONGEST_SHOWN = 120  # characters of a name in a message


def join_names(names: Sequence[str], limit: int = 6) -> str:
    """Return names for a message, at most `limit` of them; empty without names."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def broken_rule(name: str, *reserved: str) -> str:
    """Return the rule that a file name breaks; empty if it is a plain path below a folder.

    Args:
        name: relative path with `/`.
        *reserved: first components that are not allowed, in lower case. Upper and lower case count as the same, because
            some file systems do not distinguish them.
    """
    parts = name.split("/")
    if not name or name.startswith("/"):
        return "a name must be a relative path"
    if any(part in ("", ".", "..") for part in parts):
        return "a name must have no component that is empty, '.' or '..'"
    if "\\" in name or any(unicodedata.category(character) in _UNPRINTABLE for character in name):
        return "a name must have no backslash and no control character"
    if any(len(part.encode()) > _LONGEST_COMPONENT for part in parts):
        return f"a component of a name must have at most {_LONGEST_COMPONENT} bytes"
    if parts[0].casefold() in reserved:
        return f"{parts[0].casefold()} is reserved"
    return ""


def first_conflict(names: Iterable[str]) -> tuple[str, str] | None:
    """Return two names that cannot both be files: equal ones, or `a` and `a/b`.

    The result is None if all names can be files together.
    """
    # Sort by components, because `a-` sorts between `a` and `a/b`.
    for first, second in pairwise(sorted(name.split("/") for name in names)):
        if first == second[: len(first)]:
            return "/".join(first), "/".join(second)
    return None


def check_names(names: Iterable[str], origin: str, error: type[TrainJobError], *reserved: str, hint: str) -> None:
    """Refuse a list of file names if one of them breaks a rule.

    Args:
        names: relative paths with `/`.
        origin: source of the list, for the message.
        error: the class of the error.
        *reserved: see [broken_rule][].
        hint: advice for the user.

    Raises:
        TrainJobError: of the class `error`; the message names the file and the rule.
    """
    for name in names:
        if rule := broken_rule(name, *reserved):
            raise error(f"{origin} lists the file {_format_name(name)}: {rule}; nothing was changed", hint=hint)


def check_conflicts(names: Iterable[str], origin: str, error: type[TrainJobError], *, hint: str) -> None:
    """Refuse a list of file names if two of them are equal, or conflict as `a` and `a/b`.

    Raises:
        TrainJobError: of the class `error`; the message names both.
    """
    if conflict := first_conflict(names):
        folder, name = map(_format_name, conflict)
        rule = f"{folder} is a file in the same list"
        raise error(f"{origin} lists the file {name}, but {rule}; nothing was changed", hint=hint)


def _format_name(name: str) -> str:
    return repr(name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}…")
