"""The shapes of the TrainJob API, which all have the version v1alpha1.

Sources: pkg/apis/trainer/v1alpha1/trainjob_types.go of Trainer v2.0.1, v2.1.0, v2.2.1 and v2.3.0. The module
`trainjob.manifest.compatibility` contains the other differences, and what each dialect cannot express.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

MANAGER = "trainjob.dev/workflow-step"
"""Name of this project as manager, which the API requires in each entry of `runtimePatches`."""


class Dialect(str, Enum):
    """A shape of the API, named after the first Trainer version that uses it."""

    V2_0 = "2.0"
    V2_1 = "2.1"
    V2_2 = "2.2"
    """Trainer 2.2 and later."""


_CONTAINERS = {"launcher": "node"}  # Trainer 2.3 manifests/base/runtimes/{deepspeed,mlx}_distributed.yaml
_KEYS = {"podSpecOverrides": Dialect.V2_0, "podTemplateOverrides": Dialect.V2_1}


def detect_dialect(spec_fields: Collection[str]) -> Dialect:
    """Return the dialect of a cluster, which its key for changes to the pods identifies.

    Args:
        spec_fields: the fields of a TrainJob's spec on the cluster; empty if the cluster does not publish them. The
            result is then the newest dialect. TrainJobs are created with strict field validation, so the API server
            refuses a wrong guess by the unknown field's name, and no field is lost.
    """
    return next((dialect for key, dialect in _KEYS.items() if key in spec_fields), Dialect.V2_2)


@dataclass(frozen=True)
class PodPatch:
    """A change to the pods of some replicated jobs.

    Attributes:
        replicated_jobs: names such as `node`. Each job has one container of the same name, except MPI's `launcher`,
            whose container is `node`.
        volumes: pod volumes to add.
        mounts: mounts to add to that container.
        spec: other fields of the pod's spec.
        metadata: labels and annotations of the pods. Trainer 2.0 cannot set them.
        container: other fields of that container. Only Trainer 2.2 and later can set them.
    """

    replicated_jobs: Sequence[str]
    volumes: Sequence[Mapping[str, Any]] = ()
    mounts: Sequence[Mapping[str, Any]] = ()
    spec: Mapping[str, Any] | None = None
    metadata: Mapping[str, Mapping[str, str]] | None = None
    container: Mapping[str, Any] | None = None


def pod_patch(patch: PodPatch, dialect: Dialect) -> dict[str, Any]:
    """Return the fields of a TrainJob's spec that apply a patch to its pods.

    Every Trainer merges them into the runtime's pods as a strategic merge patch. It merges volumes by name, mounts by
    path, and the node selector key by key; it replaces tolerations (pkg/runtime/core/trainingruntime.go).
    """
    return _PATCH_BUILDERS[dialect](patch)


def _spec_overrides(patch: PodPatch) -> dict[str, Any]:
    """Return `podSpecOverrides`, for Trainer 2.0.

    The webhook allows each job in one entry only. It also requires that every container of an entry exists in all jobs
    of that entry.
    """
    if not (patch.volumes or patch.mounts or patch.spec):
        return {}
    return {
        "podSpecOverrides": [
            {"targetJobs": [{"name": name}], **_build_pod_specs(patch, name)[0]} for name in patch.replicated_jobs
        ]
    }


def _template_overrides(patch: PodPatch) -> dict[str, Any]:
    """Return `podTemplateOverrides`, for Trainer 2.1.

    This webhook, too, requires that every container of an entry exists in all jobs of that entry.
    """
    return {
        "podTemplateOverrides": [
            {"targetJobs": [{"name": name}], **template}
            for name in patch.replicated_jobs
            for template in _build_pod_templates(patch, name)
        ]
    }


def _runtime_patches(patch: PodPatch) -> dict[str, Any]:
    """Return `runtimePatches`, for Trainer 2.2 and later; each entry needs its own manager."""
    rounds = zip(*(_build_pod_templates(patch, name) for name in patch.replicated_jobs), strict=True)
    patches = []
    for number, templates in enumerate(rounds, start=1):
        jobs = [
            {"name": name, "template": {"spec": {"template": template}}}
            for name, template in zip(patch.replicated_jobs, templates, strict=True)
        ]
        manager = MANAGER if number == 1 else f"{MANAGER}-{number}"
        template = {"template": {"spec": {"replicatedJobs": jobs}}}
        patches.append({"manager": manager, "trainingRuntimeSpec": template})
    return {"runtimePatches": patches}


_PATCH_BUILDERS: Mapping[Dialect, Callable[[PodPatch], dict[str, Any]]] = {
    Dialect.V2_0: _spec_overrides,
    Dialect.V2_1: _template_overrides,
    Dialect.V2_2: _runtime_patches,
}


def _build_pod_templates(patch: PodPatch, replicated_job: str) -> list[dict[str, Any]]:
    """Return the metadata and the spec of the pods; see [_build_pod_specs][]."""
    first, *more = ({"spec": spec} for spec in _build_pod_specs(patch, replicated_job))
    metadata = {"metadata": {kind: dict(texts) for kind, texts in patch.metadata.items()}} if patch.metadata else {}
    return [{**metadata, **(first if first["spec"] else {})}, *more]


def _build_pod_specs(patch: PodPatch, replicated_job: str) -> list[dict[str, Any]]:
    """Return the pod's spec, and one more spec for each repeated mount of a volume.

    In a patch, a container's mounts are a list keyed by the volume's name, so each volume can occur only once. When the
    Trainer merges them into the runtime's pods, it keys them by path, so no mount replaces another.
    """
    spec: dict[str, Any] = dict(patch.spec or {})
    if patch.volumes:
        spec["volumes"] = [dict(volume) for volume in patch.volumes]
    rounds: list[dict[str, dict[str, Any]]] = []
    for mount in patch.mounts:
        free = next((mounts for mounts in rounds if mount["name"] not in mounts), None)
        if free is None:
            rounds.append(free := {})
        free[mount["name"]] = dict(mount)
    name = _CONTAINERS.get(replicated_job, replicated_job)
    first, *more = [{"volumeMounts": list(mounts.values())} for mounts in rounds] or [{}]
    first = {**(patch.container or {}), **first}
    return [
        {**spec, **({"containers": [{"name": name, **first}]} if first else {})},
        *({"containers": [{"name": name, **mounts}]} for mounts in more),
    ]
