"""OpenAPI schemas of Kubernetes' own types.

The fields are those of the table of types. The descriptions are those of the package `kubernetes`.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Mapping
from typing import Any

from trainjob_local.apiserver.kubernetes_types import Field, load_json_fields, load_messages

__all__ = ["REFERENCE", "build_type_schemas", "describe_fields", "type_schema_name", "types_digest"]

Json = dict[str, Any]

REFERENCE = "#/components/schemas/"
"""Beginning of a reference to a schema."""

_SIMPLE: Mapping[str, Json] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "integer": {"type": "integer"},
    "bytes": {"type": "string", "format": "byte"},
    "time": {"type": "string", "format": "date-time"},
    "quantity": {"oneOf": [{"type": "string"}, {"type": "number"}], "x-kubernetes-int-or-string": True},
    "int-or-string": {"oneOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True},
    "json": {"type": "object"},
}
_NOTE = "  # noqa: E501"  # at the end of each line of the package's docstrings


def type_schema_name(key: str) -> str:
    """Return the name of a type's schema, such as `io.k8s.api.core.v1.Pod`."""
    return f"io.k8s.{key.replace('/', '.')}"


@functools.cache
def types_digest() -> str:
    """Return a digest of everything from which the schemas are made."""
    import kubernetes

    return hashlib.sha256(f"{kubernetes.__version__} {load_messages()}".encode()).hexdigest()


def build_type_schemas(key: str) -> Json:
    """Return the schema of a type and of all types that it contains, by name."""
    found: Json = {}
    _add_schemas(key, found)
    return found


def _add_schemas(key: str, found: Json) -> None:
    name = type_schema_name(key)
    if name in found:
        return
    found[name] = _build_schema(key)
    for field in load_json_fields(key).values():
        inner = field.type.removeprefix("[]").removeprefix("{}")
        if inner in load_messages():
            _add_schemas(inner, found)


@functools.cache
def _build_schema(key: str) -> Json:
    fields, descriptions = load_json_fields(key), describe_fields(key.rpartition(".")[2])
    properties = {
        name: {**_build_property(field), **({"description": descriptions[name]} if name in descriptions else {})}
        for name, field in fields.items()
    }
    required = sorted(name for name, field in fields.items() if field.presence == "required")
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _build_property(field: Field) -> Json:
    schema = _value_schema(field.type)
    if field.strategy:
        schema["x-kubernetes-patch-strategy"] = field.strategy
    if field.merge_key:
        schema |= {"x-kubernetes-patch-merge-key": field.merge_key, "x-kubernetes-list-type": "map"}
        schema["x-kubernetes-list-map-keys"] = [field.merge_key]
    return schema


def _value_schema(kind: str) -> Json:
    if kind.startswith("[]"):
        return {"type": "array", "items": _value_schema(kind[2:])}
    if kind.startswith("{}"):
        return {"type": "object", "additionalProperties": _value_schema(kind[2:])}
    if kind in _SIMPLE:
        return dict(_SIMPLE[kind])
    return {"allOf": [{"$ref": f"{REFERENCE}{type_schema_name(kind)}"}]}


def describe_fields(name: str) -> Mapping[str, str]:
    """Return the descriptions of the fields of a type of Kubernetes, by name."""
    from kubernetes.client import models

    model = getattr(models, f"V1{name}", None) or getattr(models, f"CoreV1{name}", None)
    found = {}
    for attribute, json_name in model.attribute_map.items() if model else ():
        # The paragraphs of the docstring: "Gets the ...", the description if there is one, the return value.
        parts = re.split(r"\n\s*\n", getattr(model, attribute).__doc__ or "")
        if len(parts) > 2 and not parts[1].strip().startswith(":return"):
            found[json_name] = parts[1].replace(_NOTE, "").strip()
    return found
