"""Label and field selectors: parsed once, then asked for each object. Pure.

Grammar and texts: k8s.io/apimachinery 0.36 `pkg/labels/selector.go` and `pkg/fields/selector.go`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from trainjob.local.apiserver.naming import label_key_problem, label_value_problem

__all__ = ["FieldSelector", "LabelSelector", "Requirement", "SelectorError", "parse_fields", "parse_labels"]

_TOKENS = re.compile(r"\s*(==|!=|=|!|<|>|\(|\)|,|[^\s=!<>(),]+)")
_SIGNS = frozenset(("==", "!=", "=", "!", "<", ">", "(", ")", ","))


class SelectorError(ValueError):
    """The selector can't be read; the text is the API server's."""


@dataclass(frozen=True)
class Requirement:
    """One part of a label selector.

    Attributes:
        key: the label.
        operator: `in`, `notin`, `exists`, `absent`, `>` or `<`.
        values: what it is compared with.
    """

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Says whether these labels satisfy it; a label that is missing satisfies `notin` and `absent` only."""
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
    """All requirements must hold; an empty selector matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, body: Mapping[str, Any]) -> bool:
        """Says whether an object is selected."""
        if not self.requirements:
            return True
        labels = body["metadata"].get("labels") or {}
        return all(requirement.matches(labels) for requirement in self.requirements)


class _Reader:
    """Reads a label selector token by token."""

    def __init__(self, text: str) -> None:
        self._tokens = _TOKENS.findall(text)
        self._at = 0

    def peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self._at += 1
        return token

    def requirement(self) -> Requirement:
        if self.peek() == "!":
            self.take()
            return _checked(self.word("identifier"), "absent")
        key, operator = self.word("'!', identifier, or 'end of string'"), self.peek()
        if operator in ("", ","):
            return _checked(key, "exists")
        self.take()
        if operator in ("=", "==", "!=", ">", "<"):
            value = self.take() if self.peek() not in ("", ",") else ""
            _no_sign(value, "identifier")
            return _checked(key, {"!=": "notin", ">": ">", "<": "<"}.get(operator, "in"), value)
        if operator in ("in", "notin"):
            return _checked(key, operator, *self.values())
        raise SelectorError(f"unable to parse requirement: found '{operator}', expected: in, notin, =, ==, !=, gt, lt")

    def values(self) -> list[str]:
        opening = self.take()
        if opening != "(":
            raise SelectorError(f"unable to parse requirement: found '{opening}' expected: '('")
        values, wanted = [], True
        while (token := self.take()) != ")":
            if token == ",":  # noqa: S105 - a sign of the selector
                values += [""] if wanted else []
                wanted = True
            elif not token or token in _SIGNS or not wanted:
                raise SelectorError(f"unable to parse requirement: found '{token}', expected: ',', ')' or identifier")
            else:
                values.append(token)
                wanted = False
        return values + ([""] if wanted else [])

    def word(self, expected: str) -> str:
        token = self.take()
        if not token or token in _SIGNS:
            raise SelectorError(f"unable to parse requirement: found '{token}', expected: {expected}")
        return token


def _no_sign(token: str, expected: str) -> None:
    if token in _SIGNS:
        raise SelectorError(f"unable to parse requirement: found '{token}', expected: {expected}")


def _checked(key: str, operator: str, *values: str) -> Requirement:
    if wrong := label_key_problem(key):
        raise SelectorError(f'unable to parse requirement: <nil>: Invalid value: "{key}": {wrong}')
    for value in values:
        if wrong := label_value_problem(value):
            raise SelectorError(f'unable to parse requirement: values[0][{key}]: Invalid value: "{value}": {wrong}')
    return Requirement(key, operator, frozenset(values))


def parse_labels(text: str) -> LabelSelector:
    """Reads a label selector: `a=b`, `a!=b`, `a in (b,c)`, `a notin (b)`, `a`, `!a`, `a>1`, joined by commas.

    Raises:
        SelectorError: it can't be read.
    """
    reader, found = _Reader(text), list[Requirement]()
    while reader.peek():
        found.append(reader.requirement())
        separator = reader.take()
        if separator not in ("", ","):
            raise SelectorError(f"found '{separator}', expected: ',' or 'end of string'")
        if separator == "," and not reader.peek():
            raise SelectorError("found '', expected: identifier after ','")
    return LabelSelector(tuple(found))


@dataclass(frozen=True)
class FieldSelector:
    """Fields that must, or must not, have a value.

    Attributes:
        terms: path, value, and whether they must be equal.
    """

    terms: tuple[tuple[str, str, bool], ...] = ()

    def matches(self, body: Mapping[str, Any]) -> bool:
        """Says whether an object is selected; a missing field counts as empty."""
        return all((_field(body, path) == value) == equal for path, value, equal in self.terms)

    @property
    def name(self) -> str:
        """The one name that is selected by `metadata.name=`, or an empty text."""
        return next((value for path, value, equal in self.terms if equal and path == "metadata.name"), "")


def parse_fields(text: str, supported: Collection[str] | None) -> FieldSelector:
    """Reads a field selector: `a=b`, `a==b`, `a!=b`, joined by commas; backslash escapes `,`, `=` and itself.

    Args:
        text: the selector.
        supported: paths that may be selected beyond metadata.name and metadata.namespace; None for any.

    Raises:
        SelectorError: it can't be read, or selects by another field.
    """
    terms = []
    for term in re.split(r"(?<!\\),", text):
        if not term:
            continue
        found = re.fullmatch(r"((?:[^=!\\]|\\.)*?)(!=|==|=)(.*)", term)
        if found is None:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{term}'")
        path, sign, value = found.groups()
        if supported is not None and path not in (*supported, "metadata.name", "metadata.namespace"):
            raise SelectorError(f"field label not supported: {path}")
        terms.append((path, re.sub(r"\\([\\,=])", r"\1", value), sign != "!="))
    return FieldSelector(tuple(terms))


def _field(body: Mapping[str, Any], path: str) -> str:
    value: Any = body
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if path == "source" and isinstance(value, Mapping):  # core/v1 events: the component
        value = value.get("component")
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
