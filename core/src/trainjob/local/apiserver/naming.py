"""Rules for names, labels and annotations, with the texts of k8s.io/apimachinery 0.36 `pkg/util/validation`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from trainjob.local.apiserver.refusals import FieldProblem

__all__ = ["label_key_problem", "label_value_problem", "metadata_problems", "name_problems"]

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
    f"name part must consist of alphanumeric characters, '-', '_' or '.', and {_ENDS} "
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
    """Checks metadata.name against the rule of its resource (see `Resource.names`)."""
    if not name:
        return [FieldProblem("metadata.name", "Required value", detail="name or generateName is required")]
    if rule == "path":
        wrong = next((f"may not contain '{part}'" for part in ("/", "%") if part in name), "")
        wrong = f"may not be '{name}'" if name in (".", "..") else wrong
        return [FieldProblem("metadata.name", "Invalid value", json.dumps(name), wrong)] if wrong else []
    shape, longest, text = _NAME_RULES[rule]
    found = []
    if not shape.fullmatch(name):
        found.append(text)
    if len(name) > longest:
        found.append(f"must be no more than {longest} characters")
    return [FieldProblem("metadata.name", "Invalid value", json.dumps(name), wrong) for wrong in found]


def label_key_problem(key: str) -> str:
    """Says what is wrong with a label's key, or gives an empty text."""
    prefix, slash, name = key.rpartition("/")
    if slash and (not re.fullmatch(_SUBDOMAIN, prefix) or len(prefix) > 253):
        return f"prefix part {_SUBDOMAIN_TEXT}"
    if not name:
        return "name part must be non-empty"
    if len(name) > 63:
        return "name part must be no more than 63 bytes"
    return "" if re.fullmatch(_QUALIFIED, name) else _KEY_TEXT


def label_value_problem(value: str) -> str:
    """Says what is wrong with a label's value, or gives an empty text."""
    if len(value) > 63:
        return "must be no more than 63 bytes"
    return "" if not value or re.fullmatch(_QUALIFIED, value) else _VALUE_TEXT


def metadata_problems(metadata: Mapping[str, Any]) -> list[FieldProblem]:
    """Checks labels and annotations."""
    problems = []
    for key, value in (metadata.get("labels") or {}).items():
        for shown, wrong in ((key, label_key_problem(key)), (value, label_value_problem(value))):
            if wrong:
                problems.append(FieldProblem("metadata.labels", "Invalid value", json.dumps(shown), wrong))
    annotations = metadata.get("annotations") or {}
    problems += [
        FieldProblem("metadata.annotations", "Invalid value", json.dumps(key), wrong)
        for key in annotations
        if (wrong := label_key_problem(key.lower()))
    ]
    if sum(len(key) + len(value) for key, value in annotations.items()) > _ANNOTATIONS_BYTES:
        detail = f"may not be more than {_ANNOTATIONS_BYTES} bytes"
        problems.append(FieldProblem("metadata.annotations", "Too long", detail=detail))
    return problems
