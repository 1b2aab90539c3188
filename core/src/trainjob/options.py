"""Options of a TrainJob under the names of the Kubeflow SDK (`kubeflow.trainer.options`, 0.5).

The arguments of `TrainerClient().train(...)` are also those of a [trainjob.TrainJob][]. Its `options` take these
classes and the SDK's own. Each option sets a field: `Labels(labels)` for `labels`, `Annotations(annotations)` for
`annotations`, `Name(name)` for `name`, `ActiveDeadlineSeconds(seconds)` for `deadline`, `TrainerCommand(command)` and
`TrainerArgs(args)` for those of the trainer, and `RuntimePatch` for `runtime_patches`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "ActiveDeadlineSeconds",
    "Annotations",
    "ContainerPatch",
    "JobSetSpecPatch",
    "JobSetTemplatePatch",
    "JobSpecPatch",
    "JobTemplatePatch",
    "Labels",
    "Name",
    "PodSpecPatch",
    "PodTemplatePatch",
    "ReplicatedJobPatch",
    "RuntimePatch",
    "TrainerArgs",
    "TrainerCommand",
    "TrainingRuntimeSpecPatch",
]

_Items = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Name:
    """Start of the TrainJob's name; a hash is appended, so that each attempt has its own name."""

    name: str


@dataclass(frozen=True)
class Labels:
    """Labels of the TrainJob and of its pods."""

    labels: Mapping[str, str]


@dataclass(frozen=True)
class Annotations:
    """Annotations of the TrainJob and of its pods."""

    annotations: Mapping[str, str]


@dataclass(frozen=True)
class ActiveDeadlineSeconds:
    """Maximum number of seconds that the TrainJob may be active."""

    seconds: int


@dataclass(frozen=True)
class TrainerCommand:
    """Command of a [trainjob.CustomTrainerContainer][]."""

    command: Sequence[str]


@dataclass(frozen=True)
class TrainerArgs:
    """Arguments of a [trainjob.CustomTrainerContainer][]."""

    args: Sequence[str]


@dataclass(frozen=True)
class ContainerPatch:
    """Changes to a container of the runtime; items have the names of the Kubernetes API."""

    name: str
    env: _Items | None = None
    volume_mounts: _Items | None = None
    security_context: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class PodSpecPatch:
    """Changes to a pod; items have the names of the Kubernetes API."""

    service_account_name: str | None = None
    volumes: _Items | None = None
    init_containers: Sequence[ContainerPatch] | None = None
    containers: Sequence[ContainerPatch] | None = None
    image_pull_secrets: _Items | None = None
    security_context: Mapping[str, Any] | None = None
    node_selector: Mapping[str, str] | None = None
    affinity: Mapping[str, Any] | None = None
    tolerations: _Items | None = None
    scheduling_gates: _Items | None = None


@dataclass(frozen=True)
class PodTemplatePatch:
    """Changes to the labels, the annotations and the spec of a pod."""

    metadata: Mapping[str, Any] | None = None
    spec: PodSpecPatch | None = None


@dataclass(frozen=True)
class JobSpecPatch:
    """Changes to the pods of a Job."""

    template: PodTemplatePatch | None = None


@dataclass(frozen=True)
class JobTemplatePatch:
    """Changes to the labels, the annotations and the pods of a Job."""

    metadata: Mapping[str, Any] | None = None
    spec: JobSpecPatch | None = None


@dataclass(frozen=True)
class ReplicatedJobPatch:
    """Changes to a replicated job of the runtime, such as `node`."""

    name: str
    template: JobTemplatePatch | None = None


@dataclass(frozen=True)
class JobSetSpecPatch:
    """Changes to the replicated jobs of the runtime."""

    replicated_jobs: Sequence[ReplicatedJobPatch] | None = None


@dataclass(frozen=True)
class JobSetTemplatePatch:
    """Changes to the JobSet's labels, its annotations and its replicated jobs."""

    metadata: Mapping[str, Any] | None = None
    spec: JobSetSpecPatch | None = None


@dataclass(frozen=True)
class TrainingRuntimeSpecPatch:
    """Changes to the runtime's template of a JobSet."""

    template: JobSetTemplatePatch | None = None


@dataclass(frozen=True)
class RuntimePatch:
    """Patch of the runtime, as in `runtime_patches`.

    Attributes:
        training_runtime_spec: the changes.
        manager: name of the patch, below a domain.
    """

    training_runtime_spec: TrainingRuntimeSpecPatch | None = None
    manager: str = "trainer.kubeflow.org/kubeflow-sdk"
