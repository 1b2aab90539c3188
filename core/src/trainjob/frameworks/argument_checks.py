"""Checks of a framework's arguments against a table of their types, before a TrainJob is created."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from trainjob.errors import Problem, ProblemKind
from trainjob.spec.base import invalid_field

_MAX_SUGGESTIONS = 3


def find_problems(field: str, values: Mapping[str, Any], known: Mapping[str, str], program: str) -> Iterator[Problem]:
    """Yield a problem for each value that a program does not accept.

    Args:
        field: path of the field that contains the values.
        values: values by the arguments' names.
        known: type of each argument by its name. A type is `bool`, `int`, `float`, `str`, `scalar` (a number or a
            text), `list` or `object` (a mapping of JSON values). Choices follow `str: `, separated by `|`.
        program: name and version of the program, for the error.
    """
    for name, value in values.items():
        if rule := _find_broken_rule(name, value, known, program):
            [problem] = invalid_field(f"{field}.{name}", value, rule).problems
            yield problem if name in known else replace(problem, kind=ProblemKind.UNKNOWN)


def describe_unknown(name: str, known: Iterable[str], rule: str) -> str:
    """Return the rule that an unknown name breaks, with the closest known names."""
    close = difflib.get_close_matches(name, list(known), n=_MAX_SUGGESTIONS)
    advice = f"; did you mean {' or '.join(close)}?" if close else ""
    return f"{rule}{advice}"


def _find_broken_rule(name: str, value: Any, known: Mapping[str, str], program: str) -> str:
    """Return the rule that an argument breaks, or an empty string."""
    if name not in known:
        return describe_unknown(name, known, f"{program} has no such argument")
    kind, _, choices = known[name].partition(": ")
    is_valid, description = _TYPES[kind]
    if not is_valid(value):
        return f"it must be {description}"
    if choices and value not in choices.split("|"):
        return f"it must be one of {', '.join(choices.split('|'))}"
    return ""


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_int(value) or (isinstance(value, float) and math.isfinite(value))


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str) or _is_number(value)


def _is_list(value: Any) -> bool:
    # An item that starts with - would be read as the next argument.
    return (
        isinstance(value, list | tuple)
        and bool(value)
        and all(_is_scalar(item) and not str(item).startswith("-") for item in value)
    )


_TYPES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "bool": (lambda value: isinstance(value, bool), "true or false"),
    "int": (_is_int, "a whole number"),
    "float": (_is_number, "a number"),
    "str": (lambda value: isinstance(value, str), "a text"),
    "scalar": (_is_scalar, "a number or a text"),
    "list": (_is_list, "a list of numbers or texts that do not start with -"),
    "object": (lambda value: isinstance(value, Mapping), "a mapping"),
}
