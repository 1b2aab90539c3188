"""What a container of a pod's spec may say: its variables, mounts and resources. Pure, with the API server's texts.

Source: Kubernetes 1.36 `pkg/apis/core/validation/validation.go`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal
from typing import Any

from trainjob_local.apiserver.naming import label_key_problems, name_texts
from trainjob_local.apiserver.refusals import FieldProblem
from trainjob_local.quantity import canonical, parse_quantity

__all__ = ["container_problems"]

Json = Mapping[str, Any]

_VARIABLE = re.compile("[ -<>-~]+")
_VARIABLE_TEXT = "a valid environment variable name must consist only of printable ASCII characters other than '='"
_KEY = re.compile("[-._a-zA-Z0-9]+")
_KEY_TEXT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    f"'key-name', regex used for validation is '{_KEY.pattern}')"
)
_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_ONE_OF = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
_STANDARD = ("cpu", "memory", "ephemeral-storage")
_OTHER_STANDARD = ("storage", "pods", "services", "secrets", "configmaps", "persistentvolumeclaims")
_HUGE = "hugepages-"


def container_problems(container: Json, path: str, volumes: Collection[str]) -> Iterator[FieldProblem]:
    """Lists what is wrong inside of a container.

    Args:
        container: the container.
        path: where it is.
        volumes: names of the pod's volumes.
    """
    for index, variable in enumerate(container.get("env") or ()):
        yield from _variable(variable, f"{path}.env[{index}]")
    yield from _mounts(container.get("volumeMounts") or (), path, volumes)
    yield from _resources(container.get("resources") or {}, f"{path}.resources")


def _variable(variable: Json, path: str) -> Iterator[FieldProblem]:
    name, source = variable.get("name") or "", variable.get("valueFrom")
    if not name:
        yield FieldProblem(f"{path}.name", "Required value")
    elif not _VARIABLE.fullmatch(name):
        yield FieldProblem(f"{path}.name", "Invalid value", json.dumps(name, ensure_ascii=False), _VARIABLE_TEXT)
    if source is None:
        return
    given = [kind for kind in _SOURCES if kind in source]
    wrong = "" if given else _ONE_OF
    if variable.get("value"):
        wrong = "may not be specified when `value` is not empty"
    elif len(given) > 1:
        wrong = "may not have more than one field specified at a time"
    if wrong:
        yield FieldProblem(f"{path}.valueFrom", "Invalid value", '""', wrong)
    for kind in ("configMapKeyRef", "secretKeyRef"):
        if kind in source:
            yield from _key_of(source[kind], f"{path}.valueFrom.{kind}")


def _key_of(reference: Json, path: str) -> Iterator[FieldProblem]:
    name, key = reference.get("name") or "", reference.get("key") or ""
    for wrong in name_texts("subdomain", name):
        yield FieldProblem(f"{path}.name", "Invalid value", json.dumps(name), wrong)
    if not key:
        yield FieldProblem(f"{path}.key", "Required value")
    elif not _KEY.fullmatch(key):
        yield FieldProblem(f"{path}.key", "Invalid value", json.dumps(key), _KEY_TEXT)


def _mounts(mounts: Collection[Json], path: str, volumes: Collection[str]) -> Iterator[FieldProblem]:
    seen: set[str] = set()
    for index, mount in enumerate(mounts):
        where, name, target = f"{path}.volumeMounts[{index}]", mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            yield FieldProblem(f"{where}.name", "Required value")
        if name not in volumes:
            yield FieldProblem(f"{where}.name", "Not found", json.dumps(name))
        if not target:
            yield FieldProblem(f"{where}.mountPath", "Required value")
        if target in seen:
            yield FieldProblem(f"{where}.mountPath", "Invalid value", json.dumps(target), "must be unique")
        seen.add(target)
        below = mount.get("subPath") or ""
        wrong = "must be a relative path" if below.startswith("/") else ""
        wrong = "must not contain '..'" if ".." in below.split("/") else wrong
        if wrong:
            yield FieldProblem(f"{path}.volumeMounts.subPath", "Invalid value", json.dumps(below), wrong)


def _resources(resources: Json, path: str) -> Iterator[FieldProblem]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for part, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            yield from _amount(name, amount, f"{path}.{part}[{name}]")
    for name, amount in requests.items():
        limit = limits.get(name)
        if limit is not None:
            yield from _within(name, amount, limit, path)
    if any(_whole(name) and name not in limits for name in requests):
        text = "Limit must be set for non overcommitable resources"
        yield FieldProblem(f"{path}.limits", "Required value", detail=text)
    if any(name.startswith(_HUGE) for name in limits) and not {"cpu", "memory"} & {*limits, *requests}:
        yield FieldProblem(path, "Forbidden", detail="HugePages require cpu or memory")


def _amount(name: str, amount: str | float, path: str) -> Iterator[FieldProblem]:
    for wrong in label_key_problems(name):
        yield FieldProblem(path, "Invalid value", json.dumps(name), wrong)
    known = name in _STANDARD or name.startswith(_HUGE)
    if "/" not in name and not known:
        if name not in _OTHER_STANDARD and not name.startswith("requests."):
            text = "must be a standard resource type or fully qualified"
            yield FieldProblem(path, "Invalid value", json.dumps(name), text)
        yield FieldProblem(path, "Invalid value", json.dumps(name), "must be a standard resource for containers")
    value = parse_quantity(amount)
    shown = json.dumps(canonical(amount))
    if value < 0:
        yield FieldProblem(path, "Invalid value", shown, "must be greater than or equal to 0")
    if "/" in name and value != value.to_integral_value():
        yield FieldProblem(path, "Invalid value", shown, "must be an integer")


def _within(name: str, amount: str | float, limit: str | float, path: str) -> Iterator[FieldProblem]:
    asked, most = parse_quantity(amount), parse_quantity(limit)
    wrong = _comparison(name, asked, most)
    if wrong:
        text = f"must be {wrong} {name} limit of {canonical(limit)}"
        yield FieldProblem(f"{path}.requests", "Invalid value", json.dumps(canonical(amount)), text)


def _comparison(name: str, asked: Decimal, most: Decimal) -> str:
    if _whole(name):
        return "equal to" if asked != most else ""
    return "less than or equal to" if asked > most else ""


def _whole(name: str) -> bool:
    """Resources that are not shared: devices and huge pages."""
    return "/" in name or name.startswith(_HUGE)
