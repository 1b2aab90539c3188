"""Label and field selectors: parsed once, then matched with each object. Pure functions.

Grammar: k8s.io/apimachinery 0.36 `pkg/labels/selector.go` and `pkg/fields/selector.go`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from trainjob_local.apiserver.naming import label_key_problems, label_value_problems

__all__ = [
    "FieldSelector",
    "LabelSelector",
    "Requirement",
    "SelectorError",
    "UnknownField",
    "parse_fields",
    "parse_labels",
]

_REQUIREMENT = re.compile(
    r"""\s*(?P<absent>!)?\s*(?P<key>[^\s=!<>(),]+)
    (?:\s+(?P<set>in|notin)\s*\((?P<values>[^()]*)\)|\s*(?P<sign>==|!=|=|<|>)\s*(?P<value>[^\s=!<>(),]*))?
    \s*(?:,|$)""",
    re.VERBOSE,
)
_COMPARISONS = {"=": "in", "==": "in", "!=": "notin", ">": ">", "<": "<"}
_RENAMED = {"status.successful": "status.succeeded"}
_WITHOUT_VALUE = {"spec.unschedulable": "false", "spec.hostNetwork": "false", "status.successful": "0"}
_INTEGER = re.compile(r"[+-]?[0-9]+")


class SelectorError(ValueError):
    """A selector that cannot be parsed."""


class UnknownField(SelectorError):
    """A selector by a field that the resource does not support.

    Attributes:
        field: path of the field.
    """

    def __init__(self, field: str) -> None:
        super().__init__(f"field label not supported: {field}")
        self.field = field


@dataclass(frozen=True)
class Requirement:
    """One part of a label selector.

    Attributes:
        key: key of the label.
        operator: `in`, `notin`, `exists`, `absent`, `>` or `<`.
        values: values to compare the label with.
    """

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels satisfy the requirement.

        A missing label satisfies only `notin` and `absent`.
        """
        value = labels.get(self.key)
        if value is None:
            return self.operator in ("notin", "absent")
        if self.operator in ("in", "notin"):
            return (value in self.values) == (self.operator == "in")
        if self.operator in (">", "<"):
            return self._compares(value)
        return self.operator == "exists"

    def _compares(self, value: str) -> bool:
        try:
            left, right = int(value), int(next(iter(self.values)))
        except ValueError:
            return False
        return left > right if self.operator == ">" else left < right


@dataclass(frozen=True)
class LabelSelector:
    """Requirements that must all hold; an empty selector matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, body: Mapping[str, Any]) -> bool:
        """Return whether the labels of an object satisfy all requirements."""
        if not self.requirements:
            return True
        labels = body["metadata"].get("labels") or {}
        return all(requirement.matches(labels) for requirement in self.requirements)


def parse_labels(text: str) -> LabelSelector:
    """Parse a label selector.

    Its parts are `a=b`, `a!=b`, `a in (b,c)`, `a notin (b)`, `a`, `!a` and `a>1`, joined by commas.

    Raises:
        SelectorError: the text is not a label selector.
    """
    found: list[Requirement] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _REQUIREMENT.match(text, at)
        if match is None or not (requirement := _parse_requirement(match)):
            raise SelectorError(f"unable to parse requirement: {text[at:]!r}")
        found.append(requirement)
        at = match.end()
    if text.rstrip().endswith(","):
        raise SelectorError(f"unable to parse requirement: {text!r} ends with a comma")
    return LabelSelector(tuple(found))


def _parse_requirement(match: re.Match[str]) -> Requirement | None:
    """Return the requirement of a match, or None if its key or a value is not valid."""
    key, sign = match["key"], match["sign"]
    values = [value.strip() for value in match["values"].split(",")] if match["set"] else [match["value"] or ""]
    if label_key_problems(key) or any(map(label_value_problems, values)):
        return None
    if sign in (">", "<") and not _INTEGER.fullmatch(values[0]):
        return None
    if match["absent"]:
        return None if sign or match["set"] else Requirement(key, "absent")
    operator = match["set"] or _COMPARISONS.get(sign or "")
    return Requirement(key, operator, frozenset(values)) if operator else Requirement(key, "exists")


@dataclass(frozen=True)
class FieldSelector:
    """Fields that must, or must not, have a value.

    Attributes:
        terms: for each field its path, the value, and whether the field must have it.
    """

    terms: tuple[tuple[str, str, bool], ...] = ()

    def matches(self, body: Mapping[str, Any]) -> bool:
        """Return whether the fields of an object satisfy all terms; a missing field is empty."""
        return all((_field_value(body, path) == value) == equal for path, value, equal in self.terms)

    @property
    def name(self) -> str:
        """The name that `metadata.name=` selects, or an empty string."""
        return next((value for path, value, equal in self.terms if equal and path == "metadata.name"), "")


def parse_fields(text: str, supported: Collection[str] | None) -> FieldSelector:
    """Parse a field selector.

    Its parts are `a=b`, `a==b` and `a!=b`, joined by commas. A backslash escapes `,`, `=` and itself.

    Args:
        text: the selector.
        supported: paths that it may use besides metadata.name and metadata.namespace; None for any.

    Raises:
        UnknownField: the selector uses another field.
        SelectorError: the text is not a field selector.
    """
    terms = []
    for term in sorted(re.findall(r"(?:\\.|[^,\\]|\\$)+", text)):
        found = re.fullmatch(r"(.*?)(!=|==|=)(.*)", term)
        if found is None:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{term}'")
        path, sign, value = found.groups()
        terms.append((path, _unescape(value), sign != "!="))
    for path, _, _ in terms:
        if supported is not None and path not in (*supported, "metadata.name", "metadata.namespace"):
            raise UnknownField(path)
    return FieldSelector(tuple(terms))


def _unescape(value: str) -> str:
    wrong = re.search(r"\\(.?)|([,=])", re.sub(r"\\[\\,=]", "", value))
    if wrong and wrong[2]:
        raise SelectorError(f"invalid field selector: unescaped character in value: {ord(wrong[2])}")
    if wrong:
        raise SelectorError(f"invalid field selector: invalid escape sequence: \\{wrong[1]}")
    return re.sub(r"\\([\\,=])", r"\1", value)


def _field_value(body: Mapping[str, Any], path: str) -> str:
    value: Any = body
    for part in _RENAMED.get(path, path).split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if path == "source" and isinstance(value, Mapping):  # in core/v1 events this selects the source's component
        value = value.get("component")
    if isinstance(value, bool):
        return str(value).lower()
    return _WITHOUT_VALUE.get(path, "") if value is None else str(value)
