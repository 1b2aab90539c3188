"""Strategic merge patches, which kubectl sends for built-in kinds.

Source: k8s.io/apimachinery 0.36 `pkg/util/strategicpatch/patch.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainjob_local.apiserver.kubernetes_types import Field, load_json_fields, load_messages
from trainjob_local.apiserver.status_errors import bad_request

__all__ = ["strategic_merge_patch"]

Json = dict[str, Any]
_DIRECTIVE, _RETAIN = "$patch", "$retainKeys"
_ORDER, _REMOVE = "$setElementOrder/", "$deleteFromPrimitiveList/"
_ATOMIC = Field("", "json")


def strategic_merge_patch(target: Mapping[str, Any], patch: Mapping[str, Any], key: str) -> Json:
    """Return an object with a strategic merge patch applied.

    Args:
        target: the object.
        patch: the patch, with its directives.
        key: key of the object's type in the table of types; empty for a type without patch strategies.

    Raises:
        StatusError: 400 if a directive is unknown, or if an item of a list has no merge key.
    """
    directive = patch.get(_DIRECTIVE, "merge")
    if directive == "replace":
        return {name: value for name, value in patch.items() if name != _DIRECTIVE}
    if directive == "delete":
        return {}
    if directive != "merge":
        raise bad_request(f"unknown patch type: {directive}")
    fields = load_json_fields(key) if key else {}
    merged = {name: value for name, value in target.items() if _RETAIN not in patch or name in patch[_RETAIN]}
    _remove_scalars(merged, patch)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif not name.startswith("$"):
            merged[name] = _merge_value(merged.get(name), value, fields.get(name, _ATOMIC))
    _order_lists(merged, patch, fields)
    return merged


def _remove_scalars(merged: Json, patch: Mapping[str, Any]) -> None:
    for name, values in patch.items():
        field = name.removeprefix(_REMOVE)
        if field != name and merged.get(field):
            merged[field] = [item for item in merged[field] if item not in values]


def _order_lists(merged: Json, patch: Mapping[str, Any], fields: Mapping[str, Field]) -> None:
    for name, order in patch.items():
        field = name.removeprefix(_ORDER)
        if field != name and merged.get(field):
            merged[field] = _in_order(merged[field], order, fields.get(field, _ATOMIC).merge_key)


def _merge_value(old: Any, new: Any, field: Field) -> Any:
    strategies = field.strategy.split(",")
    if isinstance(new, Mapping) and "replace" not in strategies:
        key = field.type if field.type in load_messages() else ""  # a map has none
        return strategic_merge_patch(old if isinstance(old, Mapping) else {}, new, key)
    if isinstance(new, list) and "merge" in strategies:
        return _merge_lists(old if isinstance(old, list) else [], new, field)
    return new


def _merge_lists(old: Sequence[Any], new: Sequence[Any], field: Field) -> list[Any]:
    merged = list(old)
    if not field.merge_key:
        return merged + [item for item in new if item not in merged]
    if any(isinstance(item, Mapping) and item.get(_DIRECTIVE) == "replace" for item in new):
        return [item for item in new if item.get(_DIRECTIVE) != "replace"]
    for item in new:
        if not isinstance(item, Mapping) or field.merge_key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {field.merge_key}")
        place = _find(merged, field.merge_key, item[field.merge_key])
        if item.get(_DIRECTIVE) == "delete":
            merged[:] = [one for index, one in enumerate(merged) if index != place]
        elif place is None:
            merged.append(strategic_merge_patch({}, item, field.type.removeprefix("[]")))
        else:
            merged[place] = strategic_merge_patch(merged[place], item, field.type.removeprefix("[]"))
    return merged


def _find(items: Sequence[Any], key: str, value: Any) -> int | None:
    return next((index for index, one in enumerate(items) if one.get(key) == value), None)


def _in_order(items: Sequence[Any], order: Sequence[Any], merge_key: str) -> list[Any]:
    """Return the items with those that the order lists sorted; the others keep their places."""

    def rank(item: Any) -> int | None:
        wanted = [one.get(merge_key) for one in order] if merge_key else list(order)
        value = item.get(merge_key) if merge_key else item
        return wanted.index(value) if value in wanted else None

    ordered = iter(sorted((item for item in items if rank(item) is not None), key=lambda item: rank(item) or 0))
    return [item if rank(item) is None else next(ordered) for item in items]
