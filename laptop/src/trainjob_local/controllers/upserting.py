"""Putting items into the lists of a container as the Trainer does; pure.

Source: Trainer 2.3 `pkg/apply/apply.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from trainjob_local.objects import Json

__all__ = ["upsert_ports", "upsert_variables"]


def upsert_variables(container: Json, variables: Sequence[Json]) -> None:
    """Replaces variables of the same names where they stand, or appends them."""
    for variable in variables:
        _upsert(container, "env", variable, [_same_name(one, variable) for one in container.get("env") or []])


def upsert_ports(container: Json, ports: Sequence[Json]) -> None:
    """The same for ports; those without a name have the same, none: so the first of them is replaced."""
    for port in ports:
        present = container.get("ports") or []
        same = [one.get("containerPort") == port.get("containerPort") or _same_name(one, port) for one in present]
        _upsert(container, "ports", port, same)


def _same_name(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.get("name") == other.get("name")


def _upsert(container: Json, field: str, item: Json, same: Sequence[bool]) -> None:
    present = container.setdefault(field, [])
    if any(same):
        present[same.index(True)] = deepcopy(item)
    else:
        present.append(deepcopy(item))
