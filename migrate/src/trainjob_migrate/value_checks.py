"""Checks of a container's values that the API server refuses: words, variables and quantities."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainjob_migrate.draft import Draft
from trainjob_migrate.field_records import Path
from trainjob_migrate.templates import describe_placeholder

_STRING = "it must be a string: put it in quotes"
# Kubernetes 1.36, k8s.io/apimachinery/pkg/api/resource/quantity.go.
_QUANTITY = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+|[numkMGTPE]|[KMGTPE]i)?")


def check_values(draft: Draft, path: Path, template: Mapping[str, Any]) -> None:
    """Refuse the values of a template's containers that the API server refuses.

    Args:
        draft: the draft.
        path: path of the template in the source.
        template: the pod template.
    """
    spec = template.get("spec")
    for field in ("containers", "initContainers"):
        containers = spec.get(field) if isinstance(spec, Mapping) else None
        for number, container in enumerate(containers if isinstance(containers, list) else []):
            if isinstance(container, Mapping):
                where = (*path, "spec", field, number)
                _check_words(draft, where, container)
                _check_variables(draft, (*where, "env"), container.get("env"))
                _check_quantities(draft, (*where, "resources"), container.get("resources"))


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
    for part in ("limits", "requests"):
        amounts = resources.get(part) if isinstance(resources, Mapping) else None
        for name, amount in amounts.items() if isinstance(amounts, Mapping) else ():
            is_number = isinstance(amount, int | float) and not isinstance(amount, bool)
            if not is_number and not (isinstance(amount, str) and _QUANTITY.fullmatch(amount)):
                reason = "it must be a quantity, such as 500m, 2 or 16Gi"
                draft.fields.mark_refused((*path, part, name), f"{reason}{describe_placeholder(amount)}")
