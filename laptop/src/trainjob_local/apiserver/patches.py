"""JSON merge patch (RFC 7386) and JSON patch (RFC 6902) over plain values; pure, nothing given is changed."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

__all__ = ["PatchFailed", "PatchKind", "json_patch", "merge_patch"]


class PatchKind(str, Enum):
    """The media type of a patch; a strategic merge patch is applied as a merge patch: its lists replace lists."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    JSON = "application/json-patch+json"


class PatchFailed(ValueError):
    """A JSON patch that does not fit the document: a path that is missing or a `test` that fails."""


def merge_patch(target: Any, patch: Any) -> Any:
    """Applies a merge patch: objects are merged, null removes a key, anything else replaces."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def json_patch(document: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """Applies the operations of a JSON patch in order.

    Raises:
        PatchFailed: an operation is unknown or does not fit.
    """
    document = copy.deepcopy(document)
    for operation in operations:
        document = _apply(document, operation)
    return document


def _apply(document: Any, operation: Mapping[str, Any]) -> Any:
    name, path = operation.get("op"), _tokens(operation.get("path"))
    if name in ("add", "replace", "test") and "value" not in operation:
        raise PatchFailed(f"{name} without a value")
    if name == "add":
        return _put(document, path, copy.deepcopy(operation["value"]))
    if name == "replace":
        _value_at(document, path)
        return _put(document, path, copy.deepcopy(operation["value"]), replace=True)
    if name == "remove":
        return _take(document, path)
    if name == "test":
        if not _same(_value_at(document, path), operation["value"]):
            raise PatchFailed(f"testing value {operation.get('path')} failed: test failed")
        return document
    if name in ("copy", "move"):
        return _transfer(document, _tokens(operation.get("from")), path, move=name == "move")
    raise PatchFailed(f"unexpected kind: {name}")


def _transfer(document: Any, source: list[str], path: list[str], *, move: bool) -> Any:
    value = copy.deepcopy(_value_at(document, source))
    if move and path[: len(source)] == source and len(path) > len(source):
        raise PatchFailed("a value can't be moved into itself")
    return _put(_take(document, source) if move else document, path, value)


def _same(one: Any, other: Any) -> bool:
    """Compares as JSON does: true is not 1."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _tokens(pointer: Any) -> list[str]:
    """Splits a JSON pointer (RFC 6901)."""
    if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
        raise PatchFailed(f"no JSON pointer: {pointer!r}")
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


def _index(values: Sequence[Any], token: str, *, end: bool = False) -> int:
    if token == "-" and end:  # noqa: S105 - a JSON pointer's token
        return len(values)
    if not token.isascii() or not token.isdigit() or (len(token) > 1 and token[0] == "0"):
        raise PatchFailed(f"no index: {token}")
    if int(token) >= len(values) + end:
        raise PatchFailed(f"index out of bounds: {token}")
    return int(token)


def _child(parent: Any, token: str) -> Any:
    if isinstance(parent, list):
        return parent[_index(parent, token)]
    if isinstance(parent, dict) and token in parent:
        return parent[token]
    raise PatchFailed(f"missing path: {token}")


def _value_at(document: Any, path: Sequence[str]) -> Any:
    for token in path:
        document = _child(document, token)
    return document


def _put(document: Any, path: Sequence[str], value: Any, *, replace: bool = False) -> Any:
    if not path:
        return value
    parent = _value_at(document, path[:-1])
    if isinstance(parent, list):
        position = _index(parent, path[-1], end=not replace)
        parent[position : position + replace] = [value]
    elif isinstance(parent, dict):
        parent[path[-1]] = value
    else:
        raise PatchFailed(f"missing path: {path[-1]}")
    return document


def _take(document: Any, path: Sequence[str]) -> Any:
    if not path:
        raise PatchFailed("the whole document can't be removed")
    parent = _value_at(document, path[:-1])
    _child(parent, path[-1])
    if isinstance(parent, list):
        del parent[_index(parent, path[-1])]
    else:
        del parent[path[-1]]
    return document
