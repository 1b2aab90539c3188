"""Values that an author may give to an input of another type."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

FIELDS_OF_TEXTS = {"queue": "name", "runtime": "name", "secret": "name", "resume_from": "folder", "code": "path"}
"""Field that a text means, as in Python and in files."""
_TIMEOUTS = ("deadline", "queue_timeout", "start_timeout")
_DURATIONS = (*_TIMEOUTS, "shrink_after", "ttl_after_success", "ttl_after_failure")

# The first is the type of a parameter or an output in a run, the second that of an item of a loop (kfp 2.17).
_TEXT_TYPES = ("String", "str")
_INTEGER_TYPES = ("Integer", "int")


def to_input(name: str, value: Any, kind: str) -> Any:
    """Return the value of an input in the input's type.

    A text becomes a dict, also one that only a run has. An integer becomes a float, or a list with it; as a duration,
    it counts seconds.

    Args:
        name: name of the input.
        value: the value that the author gave.
        kind: type of the input (kfp 2.17, `InputSpec.type`).
    """
    if name in _DURATIONS and (type(value) is int or isinstance(value, timedelta)):
        return str(int(value.total_seconds()) if isinstance(value, timedelta) else value)
    kind_of_value = getattr(value, "channel_type", type(value).__name__)
    if kind == "Float" and type(value) is int:
        return float(value)
    if kind == "typing.List[int]" and kind_of_value in _INTEGER_TYPES:
        return [value]
    is_text = kind_of_value in _TEXT_TYPES
    return {FIELDS_OF_TEXTS[name]: value} if is_text and name in FIELDS_OF_TEXTS else value


def is_empty_text(name: str, value: Any) -> bool:
    """Return whether the value of an input is the dict of an empty text."""
    return name in FIELDS_OF_TEXTS and value == {FIELDS_OF_TEXTS[name]: ""}
