"""References to the training container by its name, which is another one in a TrainJob."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainjob_migrate.draft import Draft


def rename_field_references(draft: Draft, value: Any, main: str, role: str) -> Any:
    """Return a pod spec whose references to the training container have its new name.

    These are `resourceFieldRef` entries, and variables such as `MAIN_CONTAINER_NAME`. Kubernetes does not start a
    container that refers to a container that the pod does not have.

    Args:
        draft: the draft; it gets a finding.
        value: the pod's spec, or a part of it.
        main: name of the training container in the source.
        role: the replicated job that gets the pod.
    """
    if isinstance(value, list):
        return [rename_field_references(draft, inner, main, role) for inner in value]
    if not isinstance(value, Mapping):
        return value
    renamed = {key: rename_field_references(draft, inner, main, role) for key, inner in value.items()}
    reference = renamed.get("resourceFieldRef")
    if isinstance(reference, Mapping) and reference.get("containerName") == main:
        _add_finding(draft, f"resourceFieldRef.containerName: {main}", main, role)
        renamed["resourceFieldRef"] = {**reference, "containerName": draft.shape.roles[role]}
    if renamed.get("value") == main and "container" in str(renamed.get("name")).lower():
        _add_finding(draft, f"variable {renamed['name']}: {main}", main, role)
        renamed["value"] = draft.shape.roles[role]
    return renamed


def rename_annotation(draft: Draft, key: str, value: str, main: str, role: str) -> tuple[str, str]:
    """Return the key and value of an annotation with the new name of the container.

    Examples are `kubectl.kubernetes.io/default-container` and `container.apparmor.security.beta.kubernetes.io/NAME`.
    """
    new = draft.shape.roles[role]
    prefix, _, name = key.rpartition("/")
    new_key = f"{prefix}/{new}" if name == main and prefix.startswith("container.") else key
    names = re.split(r"(\s*,\s*)", value)
    has_names = "container" in name and main in names
    new_value = "".join(new if one == main else one for one in names) if has_names else value
    if (new_key, new_value) != (key, value):
        _add_finding(draft, f"annotation {key}: {value}", main, role)
    return new_key, new_value


def _add_finding(draft: Draft, where: str, main: str, role: str) -> None:
    new = draft.shape.roles[role]
    if main == new:
        return
    draft.add_finding(
        "container-name",
        f"The job refers to the container {main}: {where}.",
        f"The training container of a TrainJob is called {new}.",
        f"The name is replaced by {new}.",
    )
