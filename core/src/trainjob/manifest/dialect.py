"""The shapes that the TrainJob API has had, all under the one version v1alpha1.

Sources: pkg/apis/trainer/v1alpha1/trainjob_types.go of Trainer v2.0.1, v2.1.0, v2.2.1 and v2.3.0. What else differs
between them, and what one of them can't express, is in `trainjob.manifest.limits`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

MANAGER = "trainjob.dev/workflow-step"
"""Names us as who made a patch, where the API asks for that."""


class Dialect(str, Enum):
    """A shape of the API, called after the first Trainer that speaks it."""

    V2_0 = "2.0"
    V2_1 = "2.1"
    V2_2 = "2.2"
    """2.2 and later."""


_CONTAINERS = {"launcher": "node"}  # Trainer 2.3 manifests/base/runtimes/{deepspeed,mlx}_distributed.yaml
_KEYS = {"podSpecOverrides": Dialect.V2_0, "podTemplateOverrides": Dialect.V2_1}


def dialect_of(spec_fields: Collection[str]) -> Dialect:
    """The dialect of a cluster; each has another key for changes to the pods.

    Args:
        spec_fields: the fields that a TrainJob's spec has there; empty when the cluster does not tell. Then it is taken
            for the newest: TrainJobs are created with strict field validation, so that a wrong guess is refused with
            the unknown field's name, and nothing gets lost.
    """
    return next((dialect for key, dialect in _KEYS.items() if key in spec_fields), Dialect.V2_2)


@dataclass(frozen=True)
class PodPatch:
    """What is to change in the pods of some replicated jobs.

    Attributes:
        replicated_jobs: such as `node`; each has one container of the same name, but for MPI's `launcher`: `node`.
        volumes: pod volumes to add.
        mounts: mounts to add in that container.
        spec: other fields of the pod's spec.
    """

    replicated_jobs: Sequence[str]
    volumes: Sequence[Mapping[str, Any]] = ()
    mounts: Sequence[Mapping[str, Any]] = ()
    spec: Mapping[str, Any] | None = None


def pod_patch(patch: PodPatch, dialect: Dialect) -> dict[str, Any]:
    """The fields of a TrainJob's spec that change its pods so.

    Every Trainer merges them into the runtime's pods as a strategic merge patch: volumes by name, mounts by path, the
    node selector key by key; tolerations are replaced (pkg/runtime/core/trainingruntime.go).
    """
    return _PATCHES[dialect](patch)


def _spec_overrides(patch: PodPatch) -> dict[str, Any]:
    """Trainer 2.0. Its webhook wants each job in one entry only, and every container of an entry in all of its jobs."""
    return {
        "podSpecOverrides": [
            {"targetJobs": [{"name": name}], **_pods(patch, name)[0]} for name in patch.replicated_jobs
        ]
    }


def _template_overrides(patch: PodPatch) -> dict[str, Any]:
    """Trainer 2.1. Its webhook, too, wants every container of an entry in all of the entry's jobs."""
    return {
        "podTemplateOverrides": [
            {"targetJobs": [{"name": name}], "spec": pod}
            for name in patch.replicated_jobs
            for pod in _pods(patch, name)
        ]
    }


def _runtime_patches(patch: PodPatch) -> dict[str, Any]:
    """Trainer 2.2 and later. Each entry needs a manager of its own."""
    rounds = zip(*(_pods(patch, name) for name in patch.replicated_jobs), strict=True)
    patches = []
    for number, pods in enumerate(rounds, start=1):
        jobs = [
            {"name": name, "template": {"spec": {"template": {"spec": pod}}}}
            for name, pod in zip(patch.replicated_jobs, pods, strict=True)
        ]
        manager = MANAGER if number == 1 else f"{MANAGER}-{number}"
        template = {"template": {"spec": {"replicatedJobs": jobs}}}
        patches.append({"manager": manager, "trainingRuntimeSpec": template})
    return {"runtimePatches": patches}


_PATCHES: Mapping[Dialect, Callable[[PodPatch], dict[str, Any]]] = {
    Dialect.V2_0: _spec_overrides,
    Dialect.V2_1: _template_overrides,
    Dialect.V2_2: _runtime_patches,
}


def _pods(patch: PodPatch, replicated_job: str) -> list[dict[str, Any]]:
    """The pod's spec, then one more for each time a volume is mounted again.

    A container's mounts are a list by the volume's name there, so that each can have a volume only once; merged into
    the runtime's pods they are by path, so that none takes the place of another.
    """
    spec: dict[str, Any] = dict(patch.spec or {})
    if patch.volumes:
        spec["volumes"] = [dict(volume) for volume in patch.volumes]
    rounds: list[dict[str, dict[str, Any]]] = []
    for mount in patch.mounts:
        free = next((one for one in rounds if mount["name"] not in one), None)
        if free is None:
            rounds.append(free := {})
        free[mount["name"]] = dict(mount)
    name = _CONTAINERS.get(replicated_job, replicated_job)
    mounted = [{"containers": [{"name": name, "volumeMounts": list(one.values())}]} for one in rounds]
    return [{**spec, **(mounted[0] if mounted else {})}, *mounted[1:]]
