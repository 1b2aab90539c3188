"""What a Go program says about a body that it can't read; Python's decoder says it in other words. Pure.

Source: Go 1.26 `encoding/json` (scanner.go), k8s.io/apimachinery 0.36 `pkg/runtime/serializer/recognizer`.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["parsed", "shown", "unrecognized"]

_LOOKING = {
    "Expecting property name enclosed in double quotes": "looking for beginning of object key string",
    "Expecting value": "looking for beginning of value",
    "Extra data": "after top-level value",
    "Expecting ':' delimiter": "after object key",
    "Expecting ',' delimiter": "after object key:value pair",
}
_HEADER = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
_MOST_SHOWN = 30


def parsed(body: bytes) -> Any:
    """Parses JSON.

    Raises:
        ValueError: it is none; with Go's text for the usual mistakes.
    """
    try:
        return json.loads(body, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise ValueError(_problem(error)) from error
    except UnicodeDecodeError as error:
        found = chr(body[error.start])
        raise ValueError(f"invalid character '{found}' looking for beginning of value") from error
    except RecursionError as error:
        raise ValueError("exceeded max depth") from error


def unrecognized(value: Any) -> str:
    """Says why a JSON value is no object of the API, or gives an empty text."""
    if value is None or isinstance(value, dict):
        return ""
    given = "array" if isinstance(value, list) else "string" if isinstance(value, str) else "number"
    given = "bool" if isinstance(value, bool) else given
    return f"json: cannot unmarshal {given} into Go value of type {_HEADER}"


def shown(body: bytes) -> str:
    """The beginning of a body as messages quote it."""
    text = body.decode(errors="replace") if body.startswith(b"{") else body.hex()
    return (text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]} ...") or "<empty>"


def _problem(error: json.JSONDecodeError) -> str:
    rest, where = error.doc[error.pos :], _LOOKING.get(error.msg, "in JSON")
    literal = next((word for word in ("true", "false", "null") if rest[:1] == word[0]), "")
    if literal and error.msg == "Expecting value":
        wrong = next((at for at, letter in enumerate(literal) if rest[at : at + 1] != letter), 0)
        rest, where = rest[wrong:], f"in literal {literal} (expecting '{literal[wrong]}')"
    return f"invalid character '{rest[0]}' {where}" if rest else "unexpected end of JSON input"


def _no_constant(name: str) -> Any:
    raise ValueError(f"invalid character '{name[0]}' looking for beginning of value")
