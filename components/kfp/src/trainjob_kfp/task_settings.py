"""What an author sets on a task for its pods - accelerators, tolerations, environment - as fields of our requests.

Kubeflow Pipelines hands these on as parts of a pod's spec (kfp 2.17, kfp.dsl.TaskConfig, filled in by the driver,
backend/src/v2/driver/k8s.go); under `kfp.local` all of them are empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from trainjob.errors import InvalidSpec, Problem
from trainjob.spec import Placement, SecretKeyReference


class TaskConfig(Protocol):
    """A `kfp.dsl.TaskConfig`, as far as the components declare that they apply it."""

    resources: Any
    env: Any
    tolerations: Any
    node_selector: Any
    affinity: Any


def resources(config: TaskConfig | None) -> dict[str, str]:
    """Quantities by resource. A TrainJob of ours asks for what it may use: a limit counts before a request."""
    given = (config.resources if config else None) or {}
    return {**(given.get("requests") or {}), **(given.get("limits") or {})}


def environment(config: TaskConfig | None) -> dict[str, str | SecretKeyReference]:
    """Variables by name; secrets stay references, that only the training pods resolve.

    Variables that come from the pod's own fields are left out: they are for the launcher's pod, and mean something else
    in another.

    Raises:
        InvalidSpec: a variable comes from a config map, which a step can't pass on.
    """
    entries: Sequence[Mapping[str, Any]] = (config.env if config else None) or ()
    found: dict[str, str | SecretKeyReference] = {}
    for entry in entries:
        source = entry.get("valueFrom") or {}
        if "secretKeyRef" in source:
            found[entry["name"]] = SecretKeyReference(**source["secretKeyRef"])
        elif "configMapKeyRef" in source:
            raise InvalidSpec(
                Problem(f"env.{entry['name']}", "a config map's key", "give its value, or a Secret's key, on the task")
            )
        elif not source:
            found[entry["name"]] = entry.get("value") or ""
    return found


def placement(config: TaskConfig | None) -> Placement | None:
    """Where the pods may run; None when nothing is said."""
    if config is None or not (config.node_selector or config.tolerations or config.affinity):
        return None
    return Placement(
        node_selector=config.node_selector or {}, tolerations=config.tolerations or (), affinity=config.affinity or {}
    )
