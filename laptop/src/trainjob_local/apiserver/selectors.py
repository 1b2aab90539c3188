"""Label and field selectors: parsed once, then asked for each object. Pure.

Grammar and texts: k8s.io/apimachinery 0.36 `pkg/labels/selector.go` and `pkg/fields/selector.go`.
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

_TOKENS = re.compile(r"\s*(==|!=|=|!|<|>|\(|\)|,|[^\s=!<>(),]+)")
_SIGNS = frozenset(("==", "!=", "=", "!", "<", ">", "(", ")", ","))
_COMPARISONS = {"=": "in", "==": "in", "!=": "notin", ">": ">", "<": "<"}
_RENAMED = {"status.successful": "status.succeeded"}
_WITHOUT_VALUE = {"spec.unschedulable": "false", "spec.hostNetwork": "false", "status.successful": "0"}
_INTEGER = re.compile(r"[+-]?[0-9]+")


class SelectorError(ValueError):
    """The selector can't be read; the text is the API server's."""


class UnknownField(SelectorError):
    """Objects can't be selected by this field.

    Attributes:
        field: its path.
    """

    def __init__(self, field: str) -> None:
        super().__init__(f"field label not supported: {field}")
        self.field = field


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
        absent = self.peek() == "!"
        if absent:
            self.take()
        key = self.word()
        if wrong := label_key_problems(key):
            raise _unparsable(f'<nil>: Invalid value: "{key}": {"; ".join(wrong)}')
        operator = self.peek()
        if absent or operator in ("", ","):
            return Requirement(key, "absent" if absent else "exists")
        self.take()
        if operator in ("in", "notin"):
            return _checked(key, operator, *self.values())
        if operator not in _COMPARISONS:
            raise _unparsable(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")
        value = self.word() if self.peek() not in ("", ",") else ""
        return _checked(key, _COMPARISONS[operator], value)

    def values(self) -> list[str]:
        """A list in parentheses, in which a value may be empty."""
        opening = self.take()
        if opening != "(":
            raise _unparsable(f"found '{opening}' expected: '('")
        if self.peek() in _SIGNS - {",", ")"} | {""}:
            raise _unparsable(f"found '{self.peek()}', expected: ',', ')' or identifier")
        values = [self.value()]
        while (token := self.take()) != ")":
            if token != ",":  # noqa: S105 - a sign of the selector
                raise _unparsable(f"found '{token}', expected: ',' or ')'")
            values.append(self.value())
        return values

    def value(self) -> str:
        """The next value of a list, empty when a comma or the end of the list comes first."""
        if self.peek() in (",", ")"):
            return ""
        token = self.take()
        if not token or token in _SIGNS:
            raise _unparsable(f"found '{token}', expected: ',', or identifier")
        return token

    def word(self) -> str:
        token = self.take()
        if not token or token in _SIGNS:
            raise _unparsable(f"found '{token}', expected: identifier")
        return token


def _unparsable(why: str) -> SelectorError:
    return SelectorError(f"unable to parse requirement: {why}")


def _checked(key: str, operator: str, *values: str) -> Requirement:
    problems = []
    for index, value in enumerate(sorted(set(values))):
        if operator in (">", "<") and not _INTEGER.fullmatch(value):
            text = "for 'Gt', 'Lt' operators, the value must be an integer"
            problems.append(f'values[{index}]: Invalid value: "{value}": {text}')
        if wrong := label_value_problems(value):
            problems.append(f'values[{index}][{key}]: Invalid value: "{value}": {"; ".join(wrong)}')
    if problems:
        raise _unparsable(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")
    return Requirement(key, operator, frozenset(values))


def parse_labels(text: str) -> LabelSelector:
    """Reads a label selector: `a=b`, `a!=b`, `a in (b,c)`, `a notin (b)`, `a`, `!a`, `a>1`, joined by commas.

    Raises:
        SelectorError: it can't be read.
    """
    reader, found = _Reader(text), list[Requirement]()
    while reader.peek():
        if reader.peek() in _SIGNS - {"!"}:
            expected = "identifier after ','" if found else "!, identifier, or 'end of string'"
            raise SelectorError(f"found '{reader.peek()}', expected: {expected}")
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
        UnknownField: it selects by another field.
        SelectorError: it can't be read.
    """
    terms = []
    for term in sorted(re.findall(r"(?:\\.|[^,\\]|\\$)+", text)):
        found = re.fullmatch(r"(.*?)(!=|==|=)(.*)", term)
        if found is None:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{term}'")
        path, sign, value = found.groups()
        terms.append((path, _unescaped(value), sign != "!="))
    for path, _, _ in terms:
        if supported is not None and path not in (*supported, "metadata.name", "metadata.namespace"):
            raise UnknownField(path)
    return FieldSelector(tuple(terms))


def _unescaped(value: str) -> str:
    wrong = re.search(r"\\(.?)|([,=])", re.sub(r"\\[\\,=]", "", value))
    if wrong and wrong[2]:
        raise SelectorError(f"invalid field selector: unescaped character in value: {ord(wrong[2])}")
    if wrong:
        raise SelectorError(f"invalid field selector: invalid escape sequence: \\{wrong[1]}")
    return re.sub(r"\\([\\,=])", r"\1", value)


def _field(body: Mapping[str, Any], path: str) -> str:
    value: Any = body
    for part in _RENAMED.get(path, path).split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if path == "source" and isinstance(value, Mapping):  # core/v1 events: the component
        value = value.get("component")
    if isinstance(value, bool):
        return str(value).lower()
    return _WITHOUT_VALUE.get(path, "") if value is None else str(value)
