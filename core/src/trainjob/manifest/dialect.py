"""The shapes that the TrainJob API has had, all under the one version v1alpha1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from trainjob.errors import InvalidSpec, Problem


class Dialect(str, Enum):
    """A shape of the API; a cluster's OpenAPI document tells which by the key for pod patches that it has."""

    V2_0 = "2.0"
    V2_1 = "2.1"
    V2_2 = "2.2"
    """2.2 and later."""


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


class Grammar(Protocol):
    """How a dialect says what is said differently in each."""

    def pod_patch(self, patch: PodPatch) -> Mapping[str, Any]:
        """Fields of the TrainJob's spec that patch its pods."""
        ...

    def deadline(self, seconds: int) -> Mapping[str, Any]:
        """Fields of the TrainJob's spec that end it after so many seconds."""
        ...


class _RuntimePatches:
    """Trainer 2.2 and later."""

    manager = "trainjob.dev/workflow-step"

    def pod_patch(self, patch: PodPatch) -> Mapping[str, Any]:
        jobs = [
            {"name": name, "template": {"spec": {"template": {"spec": _pod(patch, name)}}}}
            for name in patch.replicated_jobs
        ]
        template = {"template": {"spec": {"replicatedJobs": jobs}}}
        return {"runtimePatches": [{"manager": self.manager, "trainingRuntimeSpec": template}]}

    def deadline(self, seconds: int) -> Mapping[str, Any]:
        return {"activeDeadlineSeconds": seconds}


def _pod(patch: PodPatch, container: str) -> dict[str, Any]:
    spec: dict[str, Any] = dict(patch.spec or {})
    if patch.volumes:
        spec["volumes"] = [dict(volume) for volume in patch.volumes]
    if patch.mounts:
        spec["containers"] = [{"name": container, "volumeMounts": [dict(mount) for mount in patch.mounts]}]
    return spec


_GRAMMARS: Mapping[Dialect, Grammar] = {Dialect.V2_2: _RuntimePatches()}


def grammar_of(dialect: Dialect) -> Grammar:
    """The grammar of a dialect.

    Raises:
        InvalidSpec: it is not spoken yet.
    """
    if dialect not in _GRAMMARS:
        spoken = ", ".join(f"Trainer {known.value} and later" for known in _GRAMMARS)
        raise InvalidSpec(Problem("dialect", f"Trainer {dialect.value}", f"TrainJobs can be built for {spoken}"))
    return _GRAMMARS[dialect]
