"""Validation rules for names, labels and annotations.

The messages are those of k8s.io/apimachinery 0.36 `pkg/util/validation`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainjob_local.apiserver.status_errors import FieldProblem

__all__ = [
    "generate_name_problems",
    "label_key_problems",
    "label_value_problems",
    "metadata_problems",
    "name_error_messages",
    "name_problems",
]

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_ANNOTATIONS_BYTES = 256 * 1024
_ENDS = "must start and end with an alphanumeric character"
_REGEX = "regex used for validation is"
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and "
    f"{_ENDS} (e.g. 'example.com', {_REGEX} '{_SUBDOMAIN}')"
)
_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    f"{_ENDS} (e.g. 'my-name',  or '123-abc', {_REGEX} '{_LABEL}')"
)
_KEY_TEXT = (
    f"must consist of alphanumeric characters, '-', '_' or '.', and {_ENDS} "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', {_REGEX} '{_QUALIFIED}')"
)
_VALUE_TEXT = (
    f"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and {_ENDS} "
    f"(e.g. 'MyValue',  or 'my_value',  or '12345', {_REGEX} '({_QUALIFIED})?')"
)
_NAME_RULES = {
    "subdomain": (re.compile(_SUBDOMAIN), 253, _SUBDOMAIN_TEXT),
    "label": (re.compile(_LABEL), 63, _LABEL_TEXT),
}


def name_problems(rule: str, name: str) -> list[FieldProblem]:
    """Return the problems of a `metadata.name` under the rule of its resource.

    Args:
        rule: rule of the resource, see `Resource.name_rule`.
        name: the name to check; an empty name is a problem, too.
    """
    if not name:
        return [FieldProblem("metadata.name", "Required value", detail="name or generateName is required")]
    return [
        FieldProblem("metadata.name", "Invalid value", _quote(name), wrong) for wrong in name_error_messages(rule, name)
    ]


def generate_name_problems(rule: str, prefix: str) -> list[FieldProblem]:
    """Return the problems of a `metadata.generateName`, which may end with a dash.

    Args:
        rule: rule of the resource, see `Resource.name_rule`.
        prefix: the value of `generateName`; an empty one has no problems.
    """
    name = f"{prefix[:-2]}a" if len(prefix) > 1 and prefix.endswith("-") else prefix
    found = name_error_messages(rule, name) if prefix else []
    return [FieldProblem("metadata.generateName", "Invalid value", _quote(prefix), wrong) for wrong in found]


def name_error_messages(rule: str, name: str) -> list[str]:
    """Return the error messages for a name that breaks the rule of its resource.

    Args:
        rule: rule of the resource, see `Resource.name_rule`.
        name: the name to check.
    """
    if rule == "path":
        wrong = next((f"may not contain '{part}'" for part in ("/", "%") if part in name), "")
        wrong = f"may not be '{name}'" if name in (".", "..") else wrong
        return [wrong] if wrong else []
    shape, longest, text = _NAME_RULES[rule]
    too_long = [f"must be no more than {longest} characters"] if len(name) > longest else []
    return [*([] if shape.fullmatch(name) else [text]), *too_long]


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def label_key_problems(key: str) -> list[str]:
    """Return the error messages for the key of a label, an annotation or a finalizer."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        prefixed = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a valid label key {_KEY_TEXT} {prefixed}"]
    found = []
    if slash and not prefix:
        found.append("prefix part must be non-empty")
    elif slash:
        found += [f"prefix part {wrong}" for wrong in name_error_messages("subdomain", prefix)]
    if not name:
        found.append("name part must be non-empty")
    elif len(name) > 63:
        found.append("name part must be no more than 63 bytes")
    return found if re.fullmatch(_QUALIFIED, name) else [*found, f"name part {_KEY_TEXT}"]


def label_value_problems(value: str) -> list[str]:
    """Return the error messages for the value of a label."""
    found = ["must be no more than 63 bytes"] if len(value) > 63 else []
    return found if not value or re.fullmatch(_QUALIFIED, value) else [*found, _VALUE_TEXT]


def metadata_problems(metadata: Mapping[str, Any]) -> list[FieldProblem]:
    """Return the problems of labels, annotations, ownerReferences and finalizers."""
    problems: list[FieldProblem] = []
    for key, value in (metadata.get("labels") or {}).items():
        problems += _invalid_value_problems("labels", _quote(key), label_key_problems(key))
        problems += _invalid_value_problems("labels", _quote(value), label_value_problems(value))
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        problems += _invalid_value_problems("annotations", _quote(key), label_key_problems(key.lower()))
    if sum(len(key) + len(value) for key, value in annotations.items()) > _ANNOTATIONS_BYTES:
        detail = f"may not be more than {_ANNOTATIONS_BYTES} bytes"
        problems.append(FieldProblem("metadata.annotations", "Too long", detail=detail))
    # A null in a list is an empty object to Go.
    problems += _owner_problems([owner or {} for owner in metadata.get("ownerReferences") or []])
    for name in metadata.get("finalizers") or []:
        problems += _invalid_value_problems("finalizers", _quote(name), label_key_problems(name or ""))
    return problems


def _invalid_value_problems(field: str, shown: str, texts: Iterable[str]) -> list[FieldProblem]:
    return [FieldProblem(f"metadata.{field}", "Invalid value", shown, text) for text in texts]


def _owner_problems(owners: Sequence[Mapping[str, Any]]) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    for owner in owners:
        for part in ("apiVersion", "kind", "name", "uid"):
            wrong = "version must not be empty" if part == "apiVersion" else "must not be empty"
            problems += _invalid_value_problems(f"ownerReferences.{part}", '""', [] if owner.get(part) else [wrong])
    controllers = [f"{owner.get('kind', '')}/{owner.get('name', '')}" for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        found = f'Found "true" in references for {controllers[0]} and {controllers[1]}'
        text = f"Only one reference can have Controller set to true. {found}"
        problems += _invalid_value_problems("ownerReferences", json.dumps(owners, separators=(",", ":")), [text])
    return problems
