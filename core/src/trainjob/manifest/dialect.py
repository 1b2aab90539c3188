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
        replicated_jobs: such as `node`; each has one container of the same name.
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
        "podSpecOverrides": [{"targetJobs": [{"name": name}], **_pod(patch, name)} for name in patch.replicated_jobs]
    }


def _template_overrides(patch: PodPatch) -> dict[str, Any]:
    """Trainer 2.1. Its webhook, too, wants every container of an entry in all of the entry's jobs."""
    return {
        "podTemplateOverrides": [
            {"targetJobs": [{"name": name}], "spec": _pod(patch, name)} for name in patch.replicated_jobs
        ]
    }


def _runtime_patches(patch: PodPatch) -> dict[str, Any]:
    """Trainer 2.2 and later."""
    jobs = [
        {"name": name, "template": {"spec": {"template": {"spec": _pod(patch, name)}}}}
        for name in patch.replicated_jobs
    ]
    template = {"template": {"spec": {"replicatedJobs": jobs}}}
    return {"runtimePatches": [{"manager": MANAGER, "trainingRuntimeSpec": template}]}


_PATCHES: Mapping[Dialect, Callable[[PodPatch], dict[str, Any]]] = {
    Dialect.V2_0: _spec_overrides,
    Dialect.V2_1: _template_overrides,
    Dialect.V2_2: _runtime_patches,
}


def _pod(patch: PodPatch, container: str) -> dict[str, Any]:
    spec: dict[str, Any] = dict(patch.spec or {})
    if patch.volumes:
        spec["volumes"] = [dict(volume) for volume in patch.volumes]
    if patch.mounts:
        spec["containers"] = [{"name": container, "volumeMounts": [dict(mount) for mount in patch.mounts]}]
    return spec
