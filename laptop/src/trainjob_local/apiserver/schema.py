"""A short language for the shape of custom resources, and the checks an API server makes with it.

`Field` describes one value. From a description come: unknown fields (pruned or refused), defaults, the errors a Go
webhook gives for wrong types, the 422 errors of structural schemas and CEL rules, and the OpenAPI document.
Texts: kube-apiserver 1.36.3 (`k8s.io/kube-openapi/pkg/validation`, `apiextensions-apiserver/pkg/apiserver/schema`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainjob_local.apiserver.refusals import FieldProblem
from trainjob_local.quantity import canonical

__all__ = ["Field", "Rule", "as_go_writes", "prune", "schema_problems", "with_defaults"]

_NAMES = {"map": "object", "quantity": "string"}
_ZEROS = {"string": "", "integer": 0, "boolean": False}
_BLOCKING = frozenset(("Required value", "Too long", "Too many"))
_UNCHECKED = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)
_QUANTITY = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)


@dataclass(frozen=True)
class Rule:
    """A CEL rule.

    Attributes:
        cel: the rule as the CRD has it.
        message: what the server says when it is broken.
        holds: the same rule for us.
    """

    cel: str
    message: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True)
class Field:
    """The shape of one value.

    Attributes:
        type: `object`, `map` (free keys), `array`, `string`, `integer`, `boolean`, `quantity`, or `any` (kept as it
            is).
        go: its Go type, as webhooks name it in decoding errors.
        properties: the fields of an object.
        required: which of them must be there.
        items: the shape of an array's items or a map's values.
        keys: for a list that is a map: the properties that make an item unique.
        minimum: smallest number.
        min_length: shortest string.
        max_length: longest string.
        max_items: longest array.
        enum: allowed strings.
        pattern: for strings.
        default: set when the field is missing.
        immutable: may not change once it is there.
        rules: CEL rules.
        note: for the OpenAPI document.
    """

    type: str
    go: str = ""
    properties: Mapping[str, Field] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    items: Field | None = None
    keys: tuple[str, ...] = ()
    minimum: int | None = None
    min_length: int = 0
    max_length: int | None = None
    max_items: int | None = None
    enum: tuple[str, ...] = ()
    pattern: str = ""
    default: Any = None
    immutable: bool = False
    rules: tuple[Rule, ...] = ()
    note: str = ""

    def children(self, value: Any) -> Iterator[tuple[str, Field, Any]]:
        """Gives (path step, shape, value) of what is inside, in the order of names."""
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
        """Says whether a value has the right JSON type."""
        if self.type == "any":
            return True
        if self.type == "integer":
            return (isinstance(value, int) and not isinstance(value, bool)) or (
                isinstance(value, float) and value.is_integer()
            )
        if self.type == "quantity":
            return isinstance(value, (str, int, float)) and not isinstance(value, bool)
        kinds = {"object": Mapping, "map": Mapping, "array": list, "string": str, "boolean": bool}
        return isinstance(value, kinds[self.type])


def prune(shape: Field, value: Any, path: str = "") -> tuple[Any, list[str]]:
    """Drops unknown fields and nulls, makes whole floats integers; gives the rest and the paths of the unknown ones."""
    unknown: list[str] = []
    if shape.type == "object" and isinstance(value, Mapping):
        kept = {}
        for name in sorted(value, key=lambda name: (bool(path) or name != "metadata", name)):
            inner = f"{path}.{name}" if path else name
            if name not in shape.properties:
                unknown.append(inner)
            elif value[name] is not None:
                kept[name], more = prune(shape.properties[name], value[name], inner)
                unknown += more
        return kept, unknown
    if shape.items and shape.type == "array" and isinstance(value, list):
        pruned = [prune(shape.items, item, f"{path}[{index}]") for index, item in enumerate(value)]
        return [item for item, _ in pruned], [name for _, names in pruned for name in names]
    if shape.type == "array" and isinstance(value, Mapping):  # where an array is meant, all keys are unknown
        return value, [f"{path}.{name}" for name in sorted(value)]
    whole = shape.type in ("integer", "quantity") and isinstance(value, float) and value.is_integer()
    return int(value) if whole else value, unknown


def with_defaults(shape: Field, value: Any) -> Any:
    """Fills in defaults of missing fields, inside of objects that are there."""
    if shape.type == "object" and isinstance(value, Mapping):
        filled = {name: with_defaults(shape.properties[name], inner) for name, inner in value.items()}
        missing = {name: inner.default for name, inner in shape.properties.items() if inner.default is not None}
        return missing | filled
    if shape.items and shape.type == "array" and isinstance(value, list):
        return [with_defaults(shape.items, item) for item in value]
    return value


def as_go_writes(shape: Field, value: Any) -> Any:
    """Gives an object as a Go program writes it that has read it.

    Quantities are in their shortest form, and required fields are never missing: Kubernetes' own types write them
    always, those of a custom resource leave out what is empty.
    """
    if shape.type == "object" and isinstance(value, Mapping):
        written = {name: as_go_writes(shape.properties[name], inner) for name, inner in value.items()}
        missing = [name for name in shape.required if name not in value and shape.go.startswith("v1.")]
        return written | {name: _zero(shape.properties[name]) for name in missing}
    if shape.items and shape.type == "array" and isinstance(value, list):
        return [as_go_writes(shape.items, item) for item in value]
    if shape.items and shape.type == "map" and isinstance(value, Mapping):
        return {name: as_go_writes(shape.items, inner) for name, inner in value.items()}
    return canonical(value) if shape.type == "quantity" else value


def _zero(shape: Field) -> Any:
    return as_go_writes(shape, {}) if shape.type == "object" else _ZEROS.get(shape.type)


def schema_problems(shape: Field, new: Any, old: Any = None, *, broken: bool = False) -> list[FieldProblem]:
    """Lists what breaks the schema, then the CEL rules, which are not asked when the object is (already) too broken."""
    problems = list(_structure(shape, new, ""))
    blocked = broken or any(problem.kind in _BLOCKING or "must be of type" in problem.detail for problem in problems)
    problems += _duplicates(shape, new, "")
    if blocked:
        return [*problems, FieldProblem("<nil>", "Invalid value", "null", _UNCHECKED)]
    return problems + list(_rules(shape, new, old, ""))


def _structure(shape: Field, value: Any, path: str) -> Iterator[FieldProblem]:
    if shape.type == "quantity" and isinstance(value, float):
        yield from _fraction_problems(path)
        return
    if not shape.accepts(value):
        wanted, given = _NAMES.get(shape.type, shape.type), _json_type(value)
        detail = f'{path} in body must be of type {wanted}: "{given}"'
        yield FieldProblem(path, "Invalid value", json.dumps(given), detail)
        return
    yield from _limits(shape, value, path)
    if shape.type == "object":
        missing = [name for name in shape.required if name not in value]
        for name in missing:
            yield FieldProblem(f"{path}.{name}".lstrip("."), "Required value")
        if missing:  # what is inside is not looked at
            return
    for step, inner, child in shape.children(value):
        yield from _structure(inner, child, f"{path}{step}".lstrip("."))


def _fraction_problems(path: str) -> Iterator[FieldProblem]:
    """A quantity is a whole number or a text: 0.5 has to be written "500m" or "0.5"."""
    for types, detail in (
        ("integer,string", f'"{path}" must validate at least one schema (anyOf)'),
        ("integer", f"Checked value must be of type integer (default format) in {path}"),
    ):
        wrong = f'{path} in body must be of type {types}: "number"'
        yield FieldProblem(path, "Invalid value", '"number"', wrong)
        yield FieldProblem("<nil>", "Invalid value", '""', detail)


def _limits(shape: Field, value: Any, path: str) -> Iterator[FieldProblem]:
    shown = _shown(value)
    if shape.max_length is not None and len(value) > shape.max_length:
        yield FieldProblem(path, "Too long", detail=f"may not be more than {shape.max_length} bytes")
    if shape.max_items is not None and len(value) > shape.max_items:
        yield FieldProblem(path, "Too many", str(len(value)), f"must have at most {shape.max_items} items")
    if shape.minimum is not None and value < shape.minimum:
        detail = f"{path} in body should be greater than or equal to {shape.minimum}"
        yield FieldProblem(path, "Invalid value", shown, detail)
    if shape.min_length and len(value) < shape.min_length:
        detail = f"{path} in body should be at least {shape.min_length} chars long"
        yield FieldProblem(path, "Invalid value", shown, detail)
    if shape.enum and value not in shape.enum:
        supported = ", ".join(json.dumps(allowed) for allowed in shape.enum)
        yield FieldProblem(path, "Unsupported value", shown, f"supported values: {supported}")
    pattern = _QUANTITY if shape.type == "quantity" else shape.pattern
    if pattern and not re.search(pattern, str(value)):
        yield FieldProblem(path, "Invalid value", shown, f"{path} in body should match '{pattern}'")


def _duplicates(shape: Field, value: Any, path: str) -> Iterator[FieldProblem]:
    if shape.keys and isinstance(value, list):
        seen = []
        for index, item in enumerate(value):
            identity = {key: item.get(key) for key in shape.keys} if isinstance(item, Mapping) else item
            if identity in seen:
                text = json.dumps(identity, separators=(",", ":"))
                yield FieldProblem(f"{path}[{index}]", "Duplicate value", text)
            seen.append(identity)
    for step, inner, child in shape.children(value):
        yield from _duplicates(inner, child, f"{path}{step}".lstrip("."))


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (str, int, float)) else ""


def _rules(shape: Field, new: Any, old: Any, path: str) -> Iterator[FieldProblem]:
    shown = _shown(new)
    for rule in shape.rules:
        if not rule.holds(new):
            yield FieldProblem(path or "<nil>", "Invalid value", shown, rule.message)
    if shape.immutable and old is not None and new != old:
        yield FieldProblem(path, "Invalid value", shown, "field is immutable")
    for step, inner, child in shape.children(new):
        yield from _rules(inner, child, _counterpart(shape, old, step, child), f"{path}{step}".lstrip("."))


def _counterpart(shape: Field, old: Any, step: str, child: Any) -> Any:
    """Finds the old value a new one replaces: by name in objects, by key in lists that are maps, else none."""
    if shape.type == "object":
        return old.get(step[1:]) if isinstance(old, Mapping) else None
    if shape.keys and isinstance(old, list):
        identity = [child.get(key) for key in shape.keys]
        return next((item for item in old if [item.get(key) for key in shape.keys] == identity), None)
    return None


def _json_type(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")
