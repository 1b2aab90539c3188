"""Values that an author may give to an input of another type."""

from __future__ import annotations

from typing import Any

FIELDS_OF_TEXTS = {"queue": "name", "runtime": "name", "secret": "name", "resume_from": "folder"}
"""Field that a text stands for, as in Python and in files."""

_TEXT_TYPES = ("String", "str")  # of a value of the run: a parameter or an output, and an item of a loop (kfp 2.17)


def to_input(name: str, value: Any, kind: str) -> Any:
    """Return the value of an input in the input's type.

    A text becomes a dict, also one that only a run has. An integer becomes a float.

    Args:
        name: name of the input.
        value: the value that the author gave.
        kind: type of the input (kfp 2.17, `InputSpec.type`).
    """
    if kind == "Float" and type(value) is int:
        return float(value)
    is_text = isinstance(value, str) or getattr(value, "channel_type", None) in _TEXT_TYPES
    return {FIELDS_OF_TEXTS[name]: value} if is_text and name in FIELDS_OF_TEXTS else value


def is_empty_text(name: str, value: Any) -> bool:
    """Return whether the value of an input is the dict of an empty text."""
    return name in FIELDS_OF_TEXTS and value == {FIELDS_OF_TEXTS[name]: ""}
