"""Kubernetes' own types: fields, protobuf numbers and patch strategies.

`tools/apiserver/kubernetes_types.py` writes the table from the Go types of Kubernetes 1.36.3.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Field", "Message", "find_message_key", "load_json_fields", "load_messages"]

_META = "apimachinery/pkg/apis/meta/v1"


@dataclass(frozen=True)
class Field:
    """A field of a type.

    Attributes:
        name: name in JSON; empty if JSON has the fields of its type in place of it.
        type: `string`, `bool`, `integer`, `bytes`, `time`, `quantity`, `int-or-string`, `json`, or the key of a type.
            A list has `[]` before it, a map from strings has `{}`.
        presence: `required` if JSON always has it, `pointer` if JSON has it unless it is null, else empty: then JSON
            leaves out a zero.
        strategy: patch strategies of a strategic merge patch, such as `merge` or `merge,retainKeys`.
        merge_key: field that identifies the items of a list with the strategy `merge`; empty for lists of scalars.
    """

    name: str
    type: str
    presence: str = ""
    strategy: str = ""
    merge_key: str = ""


Message = Mapping[int, Field]
"""The fields of a type, by their number in protobuf."""


@functools.cache
def load_messages() -> Mapping[str, Message]:
    """Return all types by key, such as `api/core/v1.Pod`."""
    table = json.loads(Path(__file__).with_suffix(".json").read_text())
    return {key: {int(number): Field(*values) for number, values in fields.items()} for key, fields in table.items()}


@functools.cache
def load_json_fields(key: str) -> Mapping[str, Field]:
    """Return the fields that objects of a type have in JSON, by name."""
    found: dict[str, Field] = {}
    for field in load_messages()[key].values():
        found |= {field.name: field} if field.name else load_json_fields(field.type)
    return found


def find_message_key(group: str, version: str, kind: str) -> str:
    """Return the key of a kind's type; empty if the table does not have it."""
    package = _META if kind == "DeleteOptions" else f"api/{group.partition('.')[0] or 'core'}/{version}"
    key = f"{package}.{kind}"
    return key if key in load_messages() else ""
