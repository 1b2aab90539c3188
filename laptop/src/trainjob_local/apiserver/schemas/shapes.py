"""Short words to describe the shapes of Kubernetes' own types."""

from __future__ import annotations

from typing import Any

from trainjob_local.apiserver.schema import Field

__all__ = ["ANY", "BOOLEAN", "INT32", "INT64", "QUANTITY", "STRING", "STRINGS", "TEXTS", "array_of", "record", "text"]

ANY = Field("any")
STRING = Field("string", "string")
BOOLEAN = Field("boolean", "bool")
INT32 = Field("integer", "int32")
INT64 = Field("integer", "int64")
QUANTITY = Field("quantity")
STRINGS = Field("map", "map[string]string", items=STRING)
"""Texts by free keys."""
TEXTS = Field("array", "[]string", items=STRING)
"""A list of texts."""


def record(go: str, required: str = "", /, **properties: Field) -> Field:
    """Describes a struct.

    Args:
        go: its Go type.
        required: names of the fields that must be there, with spaces between.
        **properties: its fields.
    """
    return Field("object", go, properties, tuple(required.split()))


def array_of(item: Field, **limits: Any) -> Field:
    """Describes a list; `limits` are further attributes of `Field`, such as `keys` and `max_items`."""
    return Field("array", f"[]{item.go}", items=item, **limits)


def text(default: str | None = None, **limits: Any) -> Field:
    """Describes a string with a default or limits, which are attributes of `Field`."""
    return Field("string", "string", default=default, **limits)
