"""Check of the parts of a request that are written as in Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import AfterValidator

from trainjob.errors import InvalidSpec, Problem, ProblemKind
from trainjob.spec.base import to_json_value
from trainjob.spec.problems import REDACTED, find_similar, format_value

_JOBS = "spec.runtimePatches[].trainingRuntimeSpec.template.spec.replicatedJobs[]"
POD_SPEC = f"{_JOBS}.template.spec.template.spec"
"""Path of a pod's spec in a patch."""
_NAMES = {
    "object": "a mapping",
    "array": "a list",
    "string": "a text",
    "boolean": "true or false",
    "integer": "a whole number",
}
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": (int, float),
}
_BITS = {"int32": 31, "int64": 63}
_MAX_LISTED_FIELDS = 12


def check_kubernetes_value(value: Any, place: str) -> Any:
    """Return a part of a TrainJob without nulls, if the schema allows it.

    Args:
        value: the part of a request, with the names of the Kubernetes API.
        place: its path in a TrainJob, such as `spec.trainer.env[].valueFrom`.

    Raises:
        InvalidSpec: the error names each value that the schema does not allow. Its paths begin at the part.
    """
    from trainjob.trainjob_schema import find_schema  # only here: few DAGs need it when they are parsed

    plain = _without_nulls(to_json_value(value))
    if problems := list(_find_problems(find_schema(place), plain, "")):
        raise InvalidSpec(problems)
    return plain


def as_in_kubernetes(place: str) -> AfterValidator:
    """Return the validator of a field that is a part of a TrainJob.

    See [check_kubernetes_value][].
    """
    return AfterValidator(lambda value: check_kubernetes_value(value, place))


def _without_nulls(value: Any) -> Any:
    """Return a value without fields that are null, because the Trainer ignores them."""
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _find_problems(schema: Mapping[str, Any], value: Any, field: str) -> Iterator[Problem]:
    if rule := _find_broken_rule(schema, value):
        yield Problem(field, _format_value(field, value), rule)
    elif isinstance(value, dict):
        yield from _find_problems_of_fields(schema, value, field)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _find_problems(schema["items"], item, f"{field}[{number}]")


def _find_problems_of_fields(schema: Mapping[str, Any], value: dict[str, Any], field: str) -> Iterator[Problem]:
    prefix, known = f"{field}." if field else "", schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield Problem(f"{prefix}{name}", "nothing", "", ProblemKind.MISSING)
    for name, inner in value.items():
        path = f"{prefix}{name}"
        if each := known.get(name) or schema.get("additionalProperties"):
            yield from _find_problems(each, inner, path)
        else:
            yield Problem(path, _format_value(path, inner), _describe_unknown(name, [*known]), ProblemKind.UNKNOWN)


def _format_value(field: str, value: Any) -> str:
    """Return a value for an error, without the values of variables, which may be credentials."""
    if isinstance(value, list | dict):
        return f"a {type(value).__name__}"
    return REDACTED if "env[" in field else format_value(field, value)


def _describe_unknown(name: str, known: list[str]) -> str:
    """Return the sentence about a field that the API does not have."""
    close = find_similar(name, known)
    listed = f"; allowed are {', '.join(known)}" if len(known) <= _MAX_LISTED_FIELDS else ""
    return f"there is no field {name!r} here{f'; did you mean {close}?' if close else listed}"


def _find_broken_rule(schema: Mapping[str, Any], value: Any) -> str:
    """Return the rule that a value breaks, without the values in it; empty if there is none."""
    if schema.get("x-kubernetes-int-or-string"):
        is_allowed = isinstance(value, str | int | float) and not isinstance(value, bool)
        return "" if is_allowed and _matches(schema, str(value)) else "it must be a quantity, such as 2, 500m or 16Gi"
    kind = schema["type"]
    if not _has_type(value, kind):
        return f"it must be {_NAMES[kind]}"
    if kind == "integer":
        bits = _BITS[schema["format"]]
        least, most = schema.get("minimum", -(2**bits)), schema.get("maximum", 2**bits - 1)
        return "" if least <= value <= most else f"it must be at least {least} and at most {most}"
    return "" if kind == "boolean" else _find_broken_limit(schema, value)


def _has_type(value: Any, kind: str) -> bool:
    if isinstance(value, bool) or kind == "boolean":
        return isinstance(value, bool) and kind == "boolean"
    return isinstance(value, _TYPES[kind]) and not (isinstance(value, float) and not value.is_integer())


def _find_broken_limit(schema: Mapping[str, Any], value: Any) -> str:
    if isinstance(value, str) and not _matches(schema, value):
        return f"it must match {schema['pattern']}"
    if len(value) > schema.get("maxLength", len(value)):
        return f"it must have at most {schema['maxLength']} characters"
    if len(value) < schema.get("minLength", 0):
        return "it must not be empty"
    if len(value) > schema.get("maxItems", len(value)):
        return f"it must have at most {schema['maxItems']} items"
    keys = schema.get("x-kubernetes-list-map-keys", ())
    identities = [[item.get(key) for key in keys] for item in value if isinstance(item, dict)] if keys else []
    repeated = next((each for each in identities if identities.count(each) > 1), None)
    return f"several items have the {keys[0]} {repeated[0]!r}" if repeated else ""


def _matches(schema: Mapping[str, Any], text: str) -> bool:
    return "pattern" not in schema or re.fullmatch(schema["pattern"], text) is not None
