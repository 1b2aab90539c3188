"""Settings of a pipeline task for its pods, as fields of a step.

Examples are accelerators, tolerations and volumes. Kubeflow Pipelines passes the settings as parts of a pod's spec (kfp
2.17, kfp.dsl.TaskConfig; the driver fills it in, backend/src/v2/driver/k8s.go). Under `kfp.local` all of them are
empty.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from trainjob.errors import InvalidSpec, Problem
from trainjob.spec import SecretKeyReference, Volume, WorkspaceVolume
from trainjob.spec.secrets import EnvValue

_CLAIM_KEY = "persistentVolumeClaim"
# KFP 2.17 adds its API server's proxy to each container of a task (backend/src/apiserver/config/proxy/config.go).
_PROXY_VARIABLES = frozenset(("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"))


class TaskConfig(Protocol):
    """The fields of a `kfp.dsl.TaskConfig`."""

    resources: Any
    env: Any
    tolerations: Any
    node_selector: Any
    affinity: Any
    volumes: Any
    volume_mounts: Any


def resources(config: TaskConfig | None) -> dict[str, Any]:
    """Return the task's resources, as the field of a step.

    They are quantities by name. If a resource's request and limit differ, they are requests and limits.
    """
    given = (config.resources if config else None) or {}
    requests, limits = given.get("requests") or {}, given.get("limits") or {}
    amounts = {**requests, **limits}
    if all(requests.get(name, amount) == amount for name, amount in amounts.items()):
        return amounts
    return {"requests": {**limits, **requests}, "limits": amounts}


def merge_resources(config: TaskConfig | None, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the resources that are set on the task or given to the component.

    A given one overrides the task's.
    """
    found, kinds = resources(config), ("requests", "limits")
    if not {*found, *own} & {*kinds}:
        return {**found, **own}
    task, given = (part if {*part} & {*kinds} else dict.fromkeys(kinds, part) for part in (found, own))
    return {**given, **{kind: {**task.get(kind, {}), **given.get(kind, {})} for kind in kinds}}


def environment(config: TaskConfig | None) -> dict[str, EnvValue]:
    """Return the task's environment variables by name, with secrets as references.

    Only the training pods resolve the references. Variables from the fields of a pod are left out, because they
    describe the launcher's pod and would have another value in another pod. Variables for a proxy are left out, too:
    Kubeflow Pipelines adds those of its API server to each task, and does not show who has set them.
    """
    entries: Sequence[Mapping[str, Any]] = (config.env if config else None) or ()
    found: dict[str, EnvValue] = {}
    for entry in entries:
        if entry["name"] in _PROXY_VARIABLES:
            continue
        source = entry.get("valueFrom") or {}
        if "secretKeyRef" in source:
            found[entry["name"]] = SecretKeyReference(**source["secretKeyRef"])
        elif "configMapKeyRef" in source:
            found[entry["name"]] = source
        elif not source:
            found[entry["name"]] = entry.get("value") or ""
    return found


def proxy_variables(config: TaskConfig | None) -> set[str]:
    """Return the names of the task's variables for a proxy, which [environment][] leaves out."""
    return {entry["name"] for entry in (config.env if config else None) or ()} & _PROXY_VARIABLES


def placement(config: TaskConfig | None) -> dict[str, Any]:
    """Return the fields of a `Placement` that are set on the task."""
    names = ("node_selector", "tolerations", "affinity")
    return {name: value for name in names if (value := getattr(config, name, None))}


def merge_placement(config: TaskConfig | None, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a `Placement` that are set on the task or given to the component.

    A given field overrides the task's, and given tolerations are added to the task's.
    """
    found = placement(config)
    tolerations = [*found.get("tolerations", ()), *own.get("tolerations", ())]
    return {**found, **own, **({"tolerations": tolerations} if tolerations else {})}


def volumes(config: TaskConfig | None) -> tuple[Volume, ...]:
    """Return the volumes that are mounted on the task, in the order of their mounts.

    They are claims, Secrets, ConfigMaps and the pipeline's workspace. Each has a numbered name here. The driver names a
    volume after its claim or Secret, and such a name may not be allowed for a volume of a pod.
    """
    given: Sequence[Mapping[str, Any]] = (config.volumes if config else None) or ()
    mounts: Sequence[Mapping[str, Any]] = (config.volume_mounts if config else None) or ()
    return tuple(_convert_mount(mount, given, index) for index, mount in enumerate(mounts))


def find_mounted_workspace(path: str, mounted_volumes: Sequence[Volume]) -> tuple[WorkspaceVolume, Volume]:
    """Return the claim that is mounted at a path, as the step's workspace, and its mount.

    Args:
        path: an absolute path at or below a mount, such as the value of the pipeline's workspace placeholder.
        mounted_volumes: volumes that are mounted on the task.

    Raises:
        InvalidSpec: no claim is mounted there.
    """
    path = posixpath.normpath(path)
    above = [volume for volume in mounted_volumes if _is_below(path, volume.mount_path)]
    if not above:
        known = ", ".join(sorted(volume.mount_path for volume in mounted_volumes)) or "nothing"
        raise InvalidSpec(
            Problem(
                "workspace",
                repr(path),
                f"the task has no volume there, but at {known}: give the name of a PersistentVolumeClaim, mount one "
                "with kubernetes.mount_pvc, or give the pipeline a workspace (dsl.PipelineConfig)",
            )
        )
    volume = max(above, key=lambda mount: len(mount.mount_path))
    if _CLAIM_KEY not in volume.source:
        raise InvalidSpec(
            Problem(
                "workspace",
                repr(path),
                f"a {next(iter(volume.source))} is mounted there, but only a PersistentVolumeClaim can be a workspace",
            )
        )
    folder = posixpath.join(volume.sub_path, posixpath.relpath(path, volume.mount_path))
    return WorkspaceVolume(claim=volume.source[_CLAIM_KEY]["claimName"], sub_path=folder), volume


def _convert_mount(mount: Mapping[str, Any], pod_volumes: Sequence[Mapping[str, Any]], index: int) -> Volume:
    """Return the volume of one mount.

    The driver appends a volume together with each mount of it, so that both have the same index in their lists.
    """
    same = [volume for volume in pod_volumes if volume["name"] == mount["name"]]
    volume = pod_volumes[index] if index < len(pod_volumes) and pod_volumes[index] in same else same[0]
    return Volume(
        name=f"task-{pod_volumes.index(volume)}",
        source={kind: source for kind, source in volume.items() if kind != "name"},
        mount_path=mount["mountPath"],
        sub_path=mount.get("subPath") or "",
        read_only=mount.get("readOnly") or False,
    )


def _is_below(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder}/")
