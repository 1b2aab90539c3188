"""The errors a Go program gives when it decodes JSON of the wrong types.

Trainer's webhook answers with them before the schema is asked.

Source: Go 1.26 `encoding/json` and k8s.io/apimachinery 0.36 `pkg/api/resource/quantity.go`, as seen from Trainer 2.3.0.
"""

from __future__ import annotations

import re
from typing import Any

from trainjob.local.apiserver.schema import Field

__all__ = ["decoding_problem"]

_QUANTITY = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
_BITS = {"int32": 31, "int64": 63}


def decoding_problem(shape: Field, value: Any, path: str = "", struct: str = "", go: str = "") -> str:
    """Gives the text for the first value of a wrong type, or an empty one.

    Args:
        shape: what is wanted.
        value: what was sent.
        path: where, without the indices of arrays.
        struct: name of the Go struct it stands in.
        go: Go type of the value, when it is not the shape's own (items of an array).
    """
    wanted = go or shape.go
    if shape.type == "quantity":
        fits = isinstance(value, (str, int, float)) and re.match(_QUANTITY, str(value))
        return "" if fits else f"quantities must match the regular expression '{_QUANTITY}'"
    if not shape.accepts(value) or _too_big(wanted, value):
        given = _named(value, with_number=shape.type == "integer")
        return f"json: cannot unmarshal {given} into Go struct field {struct}.{path} of type {wanted}"
    inside = wanted.rpartition(".")[2] if shape.type == "object" else struct
    for step, inner, child in shape.children(value):
        deeper = f"{path}{step}".lstrip(".") if shape.type == "object" else path
        problem = decoding_problem(inner, child, deeper, inside, _item_type(shape, inner))
        if problem:
            return problem
    return ""


def _item_type(shape: Field, inner: Field) -> str:
    return shape.go.removeprefix("[]") if shape.type == "array" and not inner.go else ""


def _too_big(go: str, value: Any) -> bool:
    bits = _BITS.get(go)
    return bits is not None and not -(2**bits) <= value < 2**bits


def _named(value: Any, *, with_number: bool) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return f"number {value}" if with_number else "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"
