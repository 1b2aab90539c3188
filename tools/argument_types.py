"""Types of the arguments that a framework's dataclasses define, as the argument tables of the core write them."""

from __future__ import annotations

import dataclasses
import enum
import json
import types
import typing
from collections.abc import Iterable
from typing import Any

# Python type -> word of the table. The first that a union contains counts: `dict | str` takes JSON, and `float | int`
# takes both numbers. A union of numbers and texts is a `scalar`.
WORDS = {dict: "object", list: "list", bool: "bool", float: "float", int: "int", str: "str"}


def describe_fields(dataclass: Any) -> dict[str, str]:
    """Return a dataclass's arguments: name -> type and choices, such as `str: linear|cosine`."""
    hints = typing.get_type_hints(dataclass)
    return {
        field.name: describe_type(hints[field.name], field.metadata.get("choices"))
        for field in dataclasses.fields(dataclass)
        if field.init
    }


def describe_type(hint: Any, choices: Iterable[Any] | None) -> str:
    """Return the word for a type, followed by its choices if it has some."""
    members = typing.get_args(hint) if is_union(hint) else (hint,)
    plain = [typing.get_origin(member) or member for member in members if member is not type(None)]
    found = [each for each in plain if isinstance(each, type) and issubclass(each, enum.Enum)]
    literal = [value for member in members if typing.get_origin(member) is typing.Literal for value in member.__args__]
    literal = [] if str in plain else literal  # any other text is allowed, too
    values = [each.value for each in found[0]] if found else [str(value) for value in choices or literal]
    word = next((word for kind, word in WORDS.items() if kind in plain), "str")
    if word in ("float", "int") and str in plain:
        return "scalar"
    return f"{word}: {'|'.join(values)}" if values and word == "str" else word


def is_union(hint: Any) -> bool:
    return isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union


def format_table(values: dict[str, str]) -> str:
    rows = [f"    {json.dumps(name)}: {json.dumps(kind)}," for name, kind in sorted(values.items())]
    return "\n".join(["{", *rows, "}"])
