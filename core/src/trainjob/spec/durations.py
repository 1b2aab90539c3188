"""Durations as people write them: `90s`, `30m`, `12h`, `7d`, `PT6H`, or a number of seconds."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator

from trainjob.spec.base import invalid_field

_MAX_SECONDS = timedelta.max.total_seconds() - 86_400
_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_PATTERN = re.compile(r"([0-9]{1,9})([smhd]?)")
# ISO 8601 without years and months, whose lengths differ.
_ISO = re.compile(r"P(?=.)(?:(\d{1,6})D)?(?:T(?=.)(?:(\d{1,6})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{1,6})?)S)?)?")
_RULE = "write a duration, such as 30m, 12h, 7d or PT6H"


def parse_duration(text: str, field: str, *, default_unit: str = "") -> timedelta:
    """Return the duration that a text states.

    Args:
        text: a whole number and its unit, `s`, `m`, `h` or `d`, or a duration in the form of ISO 8601.
        field: name of the field, for the error.
        default_unit: unit of a number without one; empty if a number without a unit is not allowed.

    Raises:
        InvalidSpec: the text is not a duration.
    """
    if iso := _ISO.fullmatch(text):
        days, hours, minutes, seconds = (float(part or 0) for part in iso.groups())
        return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    found = _PATTERN.fullmatch(text)
    unit = (found[2] or default_unit) if found else ""
    if not found or not unit:
        raise invalid_field(field, text, _RULE)
    return timedelta(seconds=int(found[1]) * _UNITS[unit])


def to_duration(value: Any, field: str = "") -> timedelta:
    """Return a duration that is given as a timedelta, a number of seconds, or a text.

    A text of digits counts seconds, too.

    Args:
        value: the duration.
        field: name of the field, for the error.

    Raises:
        InvalidSpec: the value is not a duration.
    """
    if isinstance(value, timedelta):
        return value
    if isinstance(value, str):
        return parse_duration(value, field, default_unit="s")
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MAX_SECONDS:
        return timedelta(seconds=value)
    raise invalid_field(field, value, f"{_RULE}, a number of seconds, or a timedelta")


Duration = Annotated[timedelta, BeforeValidator(to_duration)]
"""A duration in any of these forms."""


def format_duration(length: timedelta) -> str:
    """Return the inverse of [parse_duration][], in the largest unit that divides the duration.

    Fractions of a second are dropped.
    """
    seconds = int(length.total_seconds())
    unit = next((unit for unit, size in _UNITS.items() if seconds and seconds % size == 0), "s")
    return f"{seconds // _UNITS[unit]}{unit}"
