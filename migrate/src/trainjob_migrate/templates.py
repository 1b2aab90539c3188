"""Advice about templates whose placeholders have not been replaced."""

from __future__ import annotations

from typing import Any

from trainjob.spec.placeholders import find_placeholders


def describe_placeholder(value: Any) -> str:
    """Return the advice to replace a placeholder, as the end of a reason.

    The result is empty if the value contains no placeholder.
    """
    found = find_placeholders(value)
    return f"; {found[0]} seems to be a placeholder: replace it before the conversion" if found else ""
