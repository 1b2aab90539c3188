"""Checks of a pod's values that the API server refuses: names, words, variables and quantities."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Any

from trainjob.spec.placeholders import find_placeholders
from trainjob.status.nested_fields import get_list, get_str
from trainjob_migrate.draft import Draft
from trainjob_migrate.field_records import Path, format_path, get_value, iterate_leaves
from trainjob_migrate.templates import describe_placeholder

_STRING = "it must be a string: put it in quotes"
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_NAME_RULE = "it must have only lower case letters, digits and -, at most 63, and a letter or digit at both ends"
_PORT_NAME = re.compile(r"(?=.*[a-z])(?!.*--)[a-z0-9](?:[-a-z0-9]{0,13}[a-z0-9])?")
_PORT_NAME_RULE = (
    "it must have at most 15 lower case letters, digits and -, with a letter, and no - at an end or beside -"
)
# Kubernetes 1.36, k8s.io/apimachinery/pkg/api/resource/quantity.go.
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))([eE][+-]?\d{1,3}|[numkMGTPE]|[KMGTPE]i)?")
_FACTORS = {
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("num", start=-3)},
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}
# Fields of a container that hold its program, in which a shell or Kubernetes may expand variables.
_PROGRAM_FIELDS = ("command", "args", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe")


def check_values(draft: Draft, path: Path, template: Mapping[str, Any]) -> None:
    """Refuse the values of a template that the API server refuses, and report placeholders.

    Args:
        draft: the draft.
        path: path of the template in the source.
        template: the pod template.
    """
    spec = template.get("spec")
    volumes = {get_str(one, "name") for one in get_list(spec, "volumes")} | draft.added_volumes
    _check_names(draft, (*path, "spec"), spec)
    report_placeholders(draft, path, template)
    for field in ("containers", "initContainers"):
        containers = spec.get(field) if isinstance(spec, Mapping) else None
        for number, container in enumerate(containers if isinstance(containers, list) else []):
            if isinstance(container, Mapping):
                where = (*path, "spec", field, number)
                _check_words(draft, where, container)
                _check_mounts(draft, where, container, volumes)
                _check_each_name(draft, (*where, "ports"), container.get("ports"), _PORT_NAME, _PORT_NAME_RULE)
                _check_variables(draft, (*where, "env"), container.get("env"))
                _check_quantities(draft, (*where, "resources"), container.get("resources"))


def report_placeholders(draft: Draft, path: Path, value: Any) -> None:
    """Add a finding for each placeholder outside programs, such as `${TAG}` in an image.

    Resources are left out, because a placeholder is no quantity and is refused.
    """
    for leaf in iterate_leaves(value):
        found = find_placeholders(get_value(value, leaf))
        if found and not _is_program(leaf) and "resources" not in leaf:
            noun = "seems to be a placeholder" if len(found) == 1 else "seem to be placeholders"
            draft.add_finding(
                "placeholder",
                f"{format_path((*path, *leaf))} contains {', '.join(found)}, which {noun}.",
                "Neither Kubernetes nor the Trainer replaces placeholders, and no image or object has such a name.",
                "The value is copied unchanged. Replace the placeholder in the job or in the converted file.",
            )


def _is_program(leaf: Path) -> bool:
    is_variable = "env" in leaf and "valueFrom" not in leaf
    return is_variable or "annotations" in leaf or any(field in leaf for field in _PROGRAM_FIELDS)


def _check_names(draft: Draft, path: Path, spec: Any) -> None:
    for field in ("volumes", "containers", "initContainers"):
        named = spec.get(field) if isinstance(spec, Mapping) else None
        for number, one in enumerate(named if isinstance(named, list) else []):
            if isinstance(one, Mapping) and not (isinstance(one.get("name"), str) and one["name"]):
                draft.fields.mark_refused((*path, field, number, "name"), "it must be a string, and is required")
        _check_each_name(draft, (*path, field), named, _NAME, _NAME_RULE)


def _check_each_name(draft: Draft, path: Path, named: Any, pattern: re.Pattern[str], rule: str) -> None:
    for number, one in enumerate(named if isinstance(named, list) else []):
        name = one.get("name") if isinstance(one, Mapping) else None
        if isinstance(name, str) and name and not pattern.fullmatch(name):
            draft.fields.mark_refused((*path, number, "name"), f"{rule}{describe_placeholder(name)}")


def _check_mounts(draft: Draft, path: Path, container: Mapping[str, Any], volumes: Collection[str]) -> None:
    for field in ("volumeMounts", "volumeDevices"):
        for number, mount in enumerate(get_list(container, field)):
            if (name := get_str(mount, "name")) not in volumes:
                reason = f"the pod has no volume {name}, or only the old operator adds it: remove it, or add the volume"
                draft.fields.mark_refused((*path, field, number), reason)


def _check_words(draft: Draft, path: Path, container: Mapping[str, Any]) -> None:
    for field in ("command", "args"):
        words = container.get(field)
        if isinstance(words, str):
            draft.fields.mark_refused((*path, field), "it must be a list of strings")
        for number, word in enumerate(words if isinstance(words, list) else []):
            if not isinstance(word, str):
                draft.fields.mark_refused((*path, field, number), _STRING)


def _check_variables(draft: Draft, path: Path, env: Any) -> None:
    for number, variable in enumerate(env if isinstance(env, list) else []):
        if isinstance(variable, Mapping) and not isinstance(variable.get("value", ""), str | None):
            draft.fields.mark_refused((*path, number, "value"), _STRING)


def _check_quantities(draft: Draft, path: Path, resources: Any) -> None:
    numbers: dict[str, dict[str, Decimal]] = {"limits": {}, "requests": {}}
    for part, known in numbers.items():
        amounts = resources.get(part) if isinstance(resources, Mapping) else None
        for name, amount in amounts.items() if isinstance(amounts, Mapping) else ():
            number = _parse_quantity(amount)
            if number is None:
                reason = "it must be a quantity, such as 500m, 2 or 16Gi"
                draft.fields.mark_refused((*path, part, name), f"{reason}{describe_placeholder(amount)}")
            else:
                known[name] = number
    limits = resources.get("limits") if isinstance(resources, Mapping) else None
    for name, request in numbers["requests"].items():
        if isinstance(limits, Mapping) and name in limits and name not in numbers["limits"]:
            continue  # the limit is refused already
        limit = numbers["limits"].get(name)
        if _needs_equal_limit(name) and limit != request:
            reason = "the API server accepts it only with an equal limit, in a Job also if a LimitRange has a default"
            draft.fields.mark_refused((*path, "requests", name), f"{reason}: set limits to the same quantity")
        elif limit is not None and request > limit:
            draft.fields.mark_refused((*path, "requests", name), "it must not be more than the limit")


def _parse_quantity(amount: Any) -> Decimal | None:
    """Return the number of a quantity; None if it is not a quantity."""
    if isinstance(amount, bool) or not isinstance(amount, str | int | float):
        return None
    found = _QUANTITY.fullmatch(str(amount))
    if not found:
        return None
    number, suffix = Decimal(found[1]), found[2] or ""
    return number * _FACTORS[suffix] if suffix in _FACTORS else Decimal(f"{number}{suffix}")


def _needs_equal_limit(name: str) -> bool:
    """Return whether Kubernetes never overcommits a resource: devices and huge pages.

    Source: Kubernetes 1.36 pkg/apis/core/v1/helper/helpers.go (IsOvercommitAllowed).
    """
    is_native = "/" not in name or "kubernetes.io/" in name
    return not is_native or name.startswith("hugepages-")
