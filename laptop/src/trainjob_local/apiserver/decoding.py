"""The errors a Go program gives when it decodes JSON of the wrong types.

Trainer's webhook answers with them before the schema is asked.

Source: Go 1.26 `encoding/json`, k8s.io/apimachinery 0.36 `pkg/api/resource/quantity.go` and
`pkg/apis/meta/v1/time.go`, as seen from Trainer 2.3.0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from trainjob_local.apiserver.schema import Field

__all__ = ["decoding_problem"]

_QUANTITY = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
_BITS = {"int32": 31, "int64": 63}
_LAYOUT = "2006-01-02T15:04:05Z07:00"
_TIME = (
    ("2006", r"\d{4}"),
    ("-", "-"),
    ("01", r"\d\d"),
    ("-", "-"),
    ("02", r"\d\d"),
    ("T", "T"),
    ("15", r"\d\d"),
    (":", ":"),
    ("04", r"\d\d"),
    (":", ":"),
    ("05", r"\d\d(\.\d+)?"),
    ("Z07:00", r"Z$|[-+]\d\d:\d\d$"),
)


def decoding_problem(shape: Field, value: Any, path: str = "", struct: str = "") -> str:
    """Gives the text for the first value of a wrong type, or an empty one.

    Quantities and times read themselves, and what they say ends the decoding; a value of another wrong type is only
    remembered until the end.

    Args:
        shape: what is wanted.
        value: what was sent.
        path: where, without the indices of arrays.
        struct: name of the Go struct it stands in.
    """
    found = list(_problems(shape, value, path, struct, shape.go))
    ending = [text for text in found if not text.startswith("json: ")]
    return next(iter(ending or found), "")


def _problems(shape: Field, value: Any, path: str, struct: str, go: str) -> Iterator[str]:
    if value is None:  # Go's null is the zero value
        return
    own = _own_problem(shape, value)
    if own is not None:
        yield from [own] if own else []
    elif not shape.accepts(value) or _too_big(go, value):
        given = _named(value, with_number=shape.type == "integer")
        where = f"struct field {struct}.{path}" if path else "value"
        yield f"json: cannot unmarshal {given} into Go {where} of type {go}"
    else:
        inside = go.rpartition(".")[2] if shape.type == "object" else struct
        for step, inner, child in shape.children(value):
            deeper = f"{path}{step}".lstrip(".") if shape.type == "object" else path
            yield from _problems(inner, child, deeper, inside, _item_type(shape, inner))


def _own_problem(shape: Field, value: Any) -> str | None:
    """What a type that reads itself says; empty for nothing, None for another type."""
    if shape.type == "quantity":
        fits = isinstance(value, (str, int, float)) and re.match(_QUANTITY, str(value))
        return "" if fits else f"quantities must match the regular expression '{_QUANTITY}'"
    return _time_problem(value) if shape.go == "v1.Time" and isinstance(value, str) else None


def _time_problem(text: str) -> str:
    rest = text
    for name, pattern in _TIME:
        found = re.match(pattern, rest)
        if not found:
            said = f"parsing time {json.dumps(text)} as {json.dumps(_LAYOUT)}"
            return f"{said}: cannot parse {json.dumps(rest)} as {json.dumps(name)}"
        rest = rest[found.end() :]
    return ""


def _item_type(shape: Field, inner: Field) -> str:
    return inner.go or (shape.go.removeprefix("[]") if shape.type == "array" else "")


def _too_big(go: str, value: Any) -> bool:
    bits = _BITS.get(go)
    return bits is not None and not -(2**bits) <= value < 2**bits


def _named(value: Any, *, with_number: bool) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return f"number {_number(value)}" if with_number else "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _number(value: float) -> str:
    """As the API server writes it: what does not fit into 64 bits has become a float."""
    if isinstance(value, int) and not _too_big("int64", value):
        return str(value)
    try:
        return f"{Decimal(repr(float(value))):f}"
    except OverflowError:  # of thousands of digits
        return "out of range"
