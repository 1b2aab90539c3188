"""Schemas of objects, and the checks that an API server makes with them.

`Schema` describes one value. The server derives from it: unknown fields (pruned or rejected), defaults, types, the 422
errors of structural schemas and CEL rules, and the OpenAPI document.
The messages are those of kube-apiserver 1.36.3 (`k8s.io/kube-openapi/pkg/validation`,
`apiextensions-apiserver/pkg/apiserver/schema`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainjob_local.apiserver.status_errors import FieldProblem
from trainjob_local.quantity import canonicalize, parse_quantity

__all__ = [
    "BOOLEAN",
    "INT32",
    "INT64",
    "LABELS",
    "MAP",
    "QUANTITY",
    "STRING",
    "STRINGS",
    "Rule",
    "Schema",
    "array_of",
    "as_go_writes",
    "find_wrong_type",
    "object_of",
    "prune",
    "schema_problems",
    "with_defaults",
]

_GO_ZEROS = {"string": "", "integer": 0, "boolean": False, "object": {}}  # of other types: null
_NAMES = {"map": "object", "quantity": "integer,string"}
_BITS = {"int32": 31, "int64": 63}
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[-+]\d\d:\d\d)")
_BLOCKING = frozenset(("Required value", "Too long", "Too many"))
_UNCHECKED = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)


@dataclass(frozen=True)
class Rule:
    """A CEL rule.

    Attributes:
        cel: the rule in CEL, as in the CRD.
        message: message of the server for a value that breaks the rule.
        is_satisfied: the same rule as a Python function.
    """

    cel: str
    message: str
    is_satisfied: Callable[[Any], bool]


@dataclass(frozen=True)
class Schema:
    """The schema of one value.

    Attributes:
        type: `object`, `map` (free keys), `array`, `string`, `integer`, `boolean`, `quantity`, or `any`.
        format: `int32`, `int64` or `date-time`, as in OpenAPI.
        properties: the fields of an object.
        required: names of fields that an object or map must have.
        items: the schema of an array's items or a map's values; without it they are not checked.
        keys: properties that identify an item of a list of type map; empty for other lists.
        minimum: smallest allowed number.
        maximum: largest allowed number.
        min_length: minimum length of a string.
        max_length: maximum length of a string.
        pattern: regular expression that is found in each allowed string; empty for any.
        max_items: maximum number of items of an array.
        enum: allowed strings.
        default: value that the server sets if the field is missing.
        immutable: whether the value cannot change after it has been set.
        rules: CEL rules.
    """

    type: str
    format: str = ""
    properties: Mapping[str, Schema] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    items: Schema | None = None
    keys: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    min_length: int = 0
    max_length: int | None = None
    pattern: str = ""
    max_items: int | None = None
    enum: tuple[str, ...] = ()
    default: Any = None
    immutable: bool = False
    rules: tuple[Rule, ...] = ()

    def children(self, value: Any) -> Iterator[tuple[str, Schema, Any]]:
        """Yield the path step, the schema and the value of each child, sorted by name or index."""
        if self.type == "object" and isinstance(value, Mapping):
            for name in sorted(value.keys() & self.properties.keys()):
                yield f".{name}", self.properties[name], value[name]
        elif self.items and self.type == "map" and isinstance(value, Mapping):
            for name in sorted(value):
                yield f".{name}", self.items, value[name]
        elif self.items and self.type == "array" and isinstance(value, list):
            for index, item in enumerate(value):
                yield f"[{index}]", self.items, item

    def accepts(self, value: Any) -> bool:
        """Return whether a value has the JSON type of the field."""
        if self.type == "any":
            return True
        if self.type == "integer":
            return (isinstance(value, int) and not isinstance(value, bool)) or (
                isinstance(value, float) and value.is_integer()
            )
        if self.type == "quantity":  # not a float: 0.5 must be written "500m" or "0.5"
            return isinstance(value, (str, int)) and not isinstance(value, bool)
        kinds = {"object": Mapping, "map": Mapping, "array": list, "string": str, "boolean": bool}
        return isinstance(value, kinds[self.type])


def object_of(required: str = "", /, **properties: Schema) -> Schema:
    """Return the schema of an object.

    Args:
        required: names of the required fields, separated by spaces.
        properties: schemas of the fields.
    """
    return Schema("object", properties=properties, required=tuple(required.split()))


def array_of(item: Schema, **limits: Any) -> Schema:
    """Return the schema of a list.

    Args:
        item: schema of the items.
        limits: further attributes of `Schema`, such as `keys` and `max_items`.
    """
    return Schema("array", items=item, **limits)


STRING, BOOLEAN, QUANTITY = Schema("string"), Schema("boolean"), Schema("quantity")
INT32, INT64 = Schema("integer", "int32"), Schema("integer", "int64")
MAP = Schema("map")
"""Schema of an object whose fields are neither checked nor changed."""
LABELS = Schema("map", items=STRING)
STRINGS = array_of(STRING)


def find_wrong_type(schema: Schema, value: Any, path: str = "") -> str:
    """Return the error message for the first value of a wrong type, or an empty string.

    A Go program cannot decode a body with such a value, and rejects it before the schema applies. The messages differ
    from Go's.
    """
    if value is None:  # Go's null is the zero value
        return ""
    if schema.type == "quantity":
        return "" if _is_quantity(value) else f"{path} must be a quantity: {json.dumps(value)}"
    bits = _BITS.get(schema.format)
    if not schema.accepts(value) or (bits and not -(2**bits) <= value < 2**bits):
        return f'{path} must be of type {schema.format or _NAMES.get(schema.type, schema.type)}: "{_json_type(value)}"'
    if schema.format == "date-time" and not _TIME.fullmatch(value):
        return f"{path} must be a time: {json.dumps(value)}"
    children = schema.children(value)
    found = (find_wrong_type(inner, child, f"{path}{step}".lstrip(".")) for step, inner, child in children)
    return next(filter(None, found), "")


def _is_quantity(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return False
    try:
        parse_quantity(value)
    except ValueError:
        return False
    return True


def prune(schema: Schema, value: Any, path: str = "") -> tuple[Any, list[str]]:
    """Drop unknown fields and nulls, and convert floats without fraction to integers.

    Returns:
        The remaining value, and the paths of the unknown fields.
    """
    unknown: list[str] = []

    def prune_child(step: str, inner: Schema, child: Any) -> Any:
        pruned, more = prune(inner, child, f"{path}{step}".lstrip("."))
        unknown.extend(more)
        return pruned

    if schema.type == "object" and isinstance(value, Mapping):
        kept = {}
        for name in sorted(value, key=lambda name: (bool(path) or name != "metadata", name)):
            if name not in schema.properties:
                unknown.append(f"{path}.{name}".lstrip("."))
            elif value[name] is not None:
                kept[name] = prune_child(f".{name}", schema.properties[name], value[name])
        return kept, unknown
    if schema.type == "array" and isinstance(value, Mapping):  # instead of an array: all its keys are unknown
        return value, [f"{path}.{name}" for name in sorted(value)]
    whole = schema.type in ("integer", "quantity") and isinstance(value, float) and value.is_integer()
    return int(value) if whole else _change_children(schema, value, prune_child), unknown


def _change_children(schema: Schema, value: Any, change: Callable[[str, Schema, Any], Any]) -> Any:
    """Return a value whose children are changed.

    Args:
        schema: schema of the value.
        value: the value; one without children is returned unchanged.
        change: called with the path step, the schema and the value of each child; returns the new value.
    """
    if schema.type == "object" and isinstance(value, Mapping):
        return {
            name: change(f".{name}", schema.properties[name], inner) if name in schema.properties else inner
            for name, inner in value.items()
        }
    if schema.items and schema.type == "map" and isinstance(value, Mapping):
        return {name: change(f".{name}", schema.items, inner) for name, inner in value.items()}
    if schema.items and schema.type == "array" and isinstance(value, list):
        return [change(f"[{index}]", schema.items, item) for index, item in enumerate(value)]
    return value


def with_defaults(schema: Schema, value: Any) -> Any:
    """Return the value with defaults for missing fields.

    Objects and lists that are missing themselves get no defaults inside.
    """
    filled = _change_children(schema, value, lambda _, inner, child: with_defaults(inner, child))
    if schema.type == "object" and isinstance(value, Mapping):
        return {name: one.default for name, one in schema.properties.items() if one.default is not None} | filled
    return filled


def as_go_writes(schema: Schema, value: Any) -> Any:
    """Return the value as a Go program writes it, which has decoded it.

    Quantities are in canonical form. Required fields that are missing have the zero of their type, except texts with a
    minimum length: the Trainer's own types omit them if they are empty.
    """
    if schema.type == "quantity":
        return canonicalize(value)
    written = _change_children(schema, value, lambda _, inner, child: as_go_writes(inner, child))
    if schema.type == "object" and isinstance(value, Mapping):
        missing = [(name, schema.properties[name]) for name in schema.required if name not in value]
        return {name: _GO_ZEROS.get(inner.type) for name, inner in missing if not inner.min_length} | written
    return written


def schema_problems(schema: Schema, new: Any, old: Any = None, *, broken: bool = False) -> list[FieldProblem]:
    """Return the violations of the schema and the CEL rules.

    Args:
        schema: the schema.
        new: the object.
        old: the object before a change; None for a new one.
        broken: whether the object has other problems that block the CEL rules. The rules are then not evaluated. The
            same applies if a value in the object is missing, too long or of a wrong type.
    """
    problems = list(_structure_problems(schema, new, ""))
    blocked = broken or any(problem.kind in _BLOCKING or "must be of type" in problem.detail for problem in problems)
    problems += _duplicate_problems(schema, new, "")
    if blocked:
        return [*problems, FieldProblem("<nil>", "Invalid value", "null", _UNCHECKED)]
    return problems + list(_rule_problems(schema, new, old, ""))


def _structure_problems(schema: Schema, value: Any, path: str) -> Iterator[FieldProblem]:
    if not schema.accepts(value):
        wanted, given = _NAMES.get(schema.type, schema.type), _json_type(value)
        detail = f'{path} in body must be of type {wanted}: "{given}"'
        yield FieldProblem(path, "Invalid value", json.dumps(given), detail)
        return
    yield from _limit_problems(schema, value, path)
    missing = [name for name in schema.required if name not in value]
    for name in missing:
        yield FieldProblem(f"{path}.{name}".lstrip("."), "Required value")
    if missing:  # the values inside are not checked
        return
    for step, inner, child in schema.children(value):
        yield from _structure_problems(inner, child, f"{path}{step}".lstrip("."))


def _limit_problems(schema: Schema, value: Any, path: str) -> Iterator[FieldProblem]:
    shown = _quote(value)
    if schema.max_length is not None and len(value) > schema.max_length:
        yield FieldProblem(path, "Too long", detail=f"may not be more than {schema.max_length} bytes")
    if schema.max_items is not None and len(value) > schema.max_items:
        yield FieldProblem(path, "Too many", str(len(value)), f"must have at most {schema.max_items} items")
    if schema.minimum is not None and value < schema.minimum:
        detail = f"{path} in body should be greater than or equal to {schema.minimum}"
        yield FieldProblem(path, "Invalid value", shown, detail)
    if schema.maximum is not None and value > schema.maximum:
        detail = f"{path} in body should be less than or equal to {schema.maximum}"
        yield FieldProblem(path, "Invalid value", shown, detail)
    if schema.pattern and schema.type == "string" and not re.search(schema.pattern, value):
        yield FieldProblem(path, "Invalid value", shown, f"{path} in body should match '{schema.pattern}'")
    if schema.min_length and len(value) < schema.min_length:
        detail = f"{path} in body should be at least {schema.min_length} chars long"
        yield FieldProblem(path, "Invalid value", shown, detail)
    if schema.enum and value not in schema.enum:
        supported = ", ".join(json.dumps(allowed) for allowed in schema.enum)
        yield FieldProblem(path, "Unsupported value", shown, f"supported values: {supported}")


def _duplicate_problems(schema: Schema, value: Any, path: str) -> Iterator[FieldProblem]:
    if schema.keys and isinstance(value, list):
        seen = []
        for index, item in enumerate(value):
            identity = {key: item.get(key) for key in schema.keys} if isinstance(item, Mapping) else item
            if identity in seen:
                text = json.dumps(identity, separators=(",", ":"))
                yield FieldProblem(f"{path}[{index}]", "Duplicate value", text)
            seen.append(identity)
    for step, inner, child in schema.children(value):
        yield from _duplicate_problems(inner, child, f"{path}{step}".lstrip("."))


def _quote(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (str, int, float)) else ""


def _rule_problems(schema: Schema, new: Any, old: Any, path: str) -> Iterator[FieldProblem]:
    shown = _quote(new)
    for rule in schema.rules:
        if not rule.is_satisfied(new):
            yield FieldProblem(path or "<nil>", "Invalid value", shown, rule.message)
    if schema.immutable and old is not None and new != old:
        yield FieldProblem(path, "Invalid value", shown, "field is immutable")
    for step, inner, child in schema.children(new):
        yield from _rule_problems(inner, child, _find_old_value(schema, old, step, child), f"{path}{step}".lstrip("."))


def _find_old_value(schema: Schema, old: Any, step: str, child: Any) -> Any:
    """Return the old value that a new one replaces.

    It is found by name in objects and by key in lists of type map. Otherwise the result is None.
    """
    if schema.type == "object":
        return old.get(step[1:]) if isinstance(old, Mapping) else None
    if schema.keys and isinstance(old, list):
        identity = [child.get(key) for key in schema.keys]
        return next((item for item in old if [item.get(key) for key in schema.keys] == identity), None)
    return None


def _json_type(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")
