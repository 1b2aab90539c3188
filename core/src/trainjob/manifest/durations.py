"""Durations as people write them: `90s`, `30m`, `12h`, `7d`."""

from __future__ import annotations

import re
from datetime import timedelta

from trainjob.errors import InvalidSpec, Problem

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_PATTERN = re.compile(r"([0-9]{1,9})([smhd]?)")


def parse_duration(text: str, field: str, *, default_unit: str = "") -> timedelta:
    """Return the duration that a text states.

    Args:
        text: a whole number and its unit: `s`, `m`, `h` or `d`.
        field: name of the field, for the error.
        default_unit: unit of a number without one; empty if a number without a unit is not allowed.

    Raises:
        InvalidSpec: the text is not a duration.
    """
    found = _PATTERN.fullmatch(text)
    unit = (found[2] or default_unit) if found else ""
    if not found or not unit:
        raise InvalidSpec(Problem(field, repr(text), "write a whole number and s, m, h or d, such as 30m, 12h or 7d"))
    return timedelta(seconds=int(found[1]) * _UNITS[unit])


def format_duration(length: timedelta) -> str:
    """Return the inverse of [parse_duration][], in the largest unit that divides the duration.

    Fractions of a second are dropped.
    """
    seconds = int(length.total_seconds())
    unit = next((unit for unit, size in _UNITS.items() if seconds and seconds % size == 0), "s")
    return f"{seconds // _UNITS[unit]}{unit}"
