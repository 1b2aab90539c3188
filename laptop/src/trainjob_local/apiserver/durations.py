"""Durations as the API server shows them in tables.

Source: k8s.io/apimachinery 0.36 `pkg/util/duration/duration.go`.
"""

from __future__ import annotations

from datetime import datetime

__all__ = ["format_duration", "format_since"]

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400
# Each row: the end of its range, its unit, and the unit of the rest (0 for none).
_RANGES = (
    (2 * _MINUTE, 1, 0),
    (10 * _MINUTE, _MINUTE, 1),
    (3 * _HOUR, _MINUTE, 0),
    (8 * _HOUR, _HOUR, _MINUTE),
    (2 * _DAY, _HOUR, 0),
    (8 * _DAY, _DAY, _HOUR),
    (2 * _YEAR, _DAY, 0),
    (8 * _YEAR, _YEAR, _DAY),
)
_LETTERS = {1: "s", _MINUTE: "m", _HOUR: "h", _DAY: "d", _YEAR: "y"}


def format_duration(seconds: float) -> str:
    """Return a duration with one or two units, such as `95s`, `5m10s` or `3d4h`."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    whole = max(whole, 0)
    unit, rest = next(((unit, rest) for end, unit, rest in _RANGES if whole < end), (_YEAR, 0))
    smaller = whole % unit // rest if rest else 0
    return f"{whole // unit}{_LETTERS[unit]}" + (f"{smaller}{_LETTERS[rest]}" if smaller else "")


def format_since(timestamp: str | None, now: datetime) -> str:
    """Return the time since a timestamp of RFC 3339; `<unknown>` if there is none."""
    if not timestamp:
        return "<unknown>"
    return format_duration((now - datetime.fromisoformat(timestamp.replace("Z", "+00:00"))).total_seconds())
