"""Resources, queue, placement and runtime of a step."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from trainjob.spec.base import Spec, invalid_field, to_json_value
from trainjob.spec.security_context import PodSecurityContextField, SecurityContextField

# Kubernetes quantities: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
_QUANTITY = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})?(m|[kMGTPE]i?|[eE][-+]?[0-9]{1,2})?")
_RESOURCE = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_SHORT_NAME = re.compile(r"cpu|memory|ephemeral-storage|storage|gpu|mig-.+|hugepages-.+", re.IGNORECASE)
_SHORT_NAMES = {
    **{name: name for name in ("cpu", "memory", "ephemeral-storage")},
    "storage": "ephemeral-storage",
    "gpu": "nvidia.com/gpu",
}
_WHOLE_NUMBER = re.compile(r"[0-9]{1,9}(\.0{1,18})?")
_DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
QUEUE_LABEL, PRIORITY_LABEL = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
"""Labels that Kueue reads from the TrainJob itself (Kueue 0.17 pkg/controller/constants)."""
BUILTIN_MODELS = ("llama3.2-1b", "llama3.2-3b", "llama3.3-70b", "qwen2.5-1.5b")
"""Models of the Trainer's built-in trainer (Trainer 2.3, pkg/runtime/framework/plugins/torch)."""


def _validate_resources(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    for name, amount in value.items():
        known = str(name)
        if not _RESOURCE.fullmatch(known) or not ("/" in known or _SHORT_NAME.fullmatch(known)):
            raise invalid_field(
                known, amount, "it is not the name of a resource, such as cpu, memory, gpu or vendor.example/device"
            )
        if isinstance(amount, bool) or not _QUANTITY.fullmatch(str(amount)):
            raise invalid_field(known, amount, "it must be a quantity such as 2, 500m or 16Gi")
        if "/" in resolve_resource_name(known) and not _WHOLE_NUMBER.fullmatch(str(amount)):
            raise invalid_field(known, amount, "devices are counted in whole numbers, such as 1")
    _check_gpu_kinds(value)
    return {str(name): str(amount) for name, amount in value.items()}


def _check_gpu_kinds(resources: Mapping[Any, Any]) -> None:
    """Refuse more than one kind of GPU on a node: whole GPUs, or MIG slices of one size.

    Source: kubeflow SDK 0.5, get_resources_per_node.

    Raises:
        InvalidSpec: several kinds are given.
    """
    names = {resolve_resource_name(str(name)) for name in resources}
    slices = sorted(name for name in names if name.startswith("nvidia.com/mig-"))
    if len(slices) > 1 or (slices and "nvidia.com/gpu" in names):
        raise invalid_field("", sorted(names), "give whole GPUs, or MIG slices of one size, not several kinds")


Resources = Annotated[Mapping[str, str], BeforeValidator(_validate_resources)]
"""Quantity of each resource on each node, by the resource's name.

`gpu` means `nvidia.com/gpu`, `mig-1g.5gb` means `nvidia.com/mig-1g.5gb`.
"""


def resolve_resource_name(name: str) -> str:
    """Return the Kubernetes name of a resource, also for a short name of the SDK.

    Upper and lower case count as the same in a short name only (kubeflow SDK 0.5, get_resources_per_node). Other names
    are unchanged, because Kubernetes distinguishes them, as in `hugepages-2Mi`.
    """
    plain = name.lower()
    return f"nvidia.com/{plain}" if plain.startswith("mig-") else _SHORT_NAMES.get(plain, name)


def count_gpus(resources: Mapping[str, str] | None) -> int:
    """Return the number of GPUs on a node, counted as the Trainer's torch plugin does.

    The plugin counts resources with `gpu` in their names, so MIG slices do not count (Trainer 2.3,
    pkg/runtime/framework/plugins/torch).
    """
    known = {resolve_resource_name(name): amount for name, amount in (resources or {}).items()}
    counted = (amount for name, amount in known.items() if "gpu" in name.lower())
    return sum(int(float(amount)) for amount in counted if _WHOLE_NUMBER.fullmatch(amount))


class Queue(Spec):
    """A Kueue LocalQueue; a plain string stands for its name.

    Attributes:
        name: name of the LocalQueue, in the TrainJob's namespace.
        priority_class: name of a WorkloadPriorityClass, which determines the order of admission and preemption.
    """

    name: str = Field(min_length=1)
    priority_class: str = ""

    @field_validator("name", "priority_class")
    @classmethod
    def _validate_name(cls, name: str) -> str:
        if name and (len(name) > 63 or not _DNS_NAME.fullmatch(name)):
            raise invalid_field("", name, "it must be a Kubernetes name of at most 63 characters")
        return name


class Placement(Spec):
    """Settings of a step's pods, such as nodes, service account and security contexts.

    Attributes:
        node_selector: labels that a node must have.
        tolerations: tolerations as in a pod's spec.
        affinity: affinity as in a pod's spec.
        service_account_name: the pods' service account.
        image_pull_secrets: names of Secrets to pull images with.
        termination_grace_period_seconds: seconds from SIGTERM until a pod that is drained, preempted or deleted is
            killed; a training that saves a checkpoint then needs enough of them. None means 30, the default of
            Kubernetes. Trainer 2.3 and later; an older API server refuses the field by its name.
        security_context: security context of the pods. Trainer 2.2 and later.
        container_security_context: security context of the container that runs the step. It does not apply to
            sidecars and init containers of the runtime. Trainer 2.2 and later.
    """

    field_aliases: ClassVar[Mapping[str, str]] = {
        "service_account": "service_account_name",
        "pull_secrets": "image_pull_secrets",
    }

    node_selector: Mapping[str, str] = Field(default_factory=dict)
    tolerations: Annotated[Sequence[Mapping[str, Any]], AfterValidator(to_json_value)] = ()
    affinity: Annotated[Mapping[str, Any], AfterValidator(to_json_value)] = Field(default_factory=dict)
    service_account_name: str = ""
    image_pull_secrets: Sequence[str] = ()
    termination_grace_period_seconds: int | None = Field(default=None, ge=1)
    security_context: PodSecurityContextField | None = None
    container_security_context: SecurityContextField | None = None


class Runtime(Spec):
    """A training runtime; a plain string stands for a ClusterTrainingRuntime's name.

    Attributes:
        name: its name.
        kind: `ClusterTrainingRuntime`, or `TrainingRuntime` for one in the TrainJob's namespace.
    """

    name: str = Field(min_length=1)
    kind: str = "ClusterTrainingRuntime"

    @field_validator("kind", mode="before")
    @classmethod
    def _validate_kind(cls, kind: Any) -> Any:
        kind = getattr(kind, "value", kind)
        if kind not in ("ClusterTrainingRuntime", "TrainingRuntime"):
            raise invalid_field("", kind, "allowed are ClusterTrainingRuntime and TrainingRuntime")
        return kind

    @property
    def builtin_model(self) -> str:
        """Model in the name `WORD-MODEL-SIZE` of a runtime with a built-in trainer, else empty.

        The Trainer, too, reads the model from the three parts of the name (Trainer 2.3, plugins/torch).
        """
        word, _, model = self.name.partition("-")
        return model if word and model in BUILTIN_MODELS else ""


_FROM_NAME = BeforeValidator(lambda given: {"name": given} if isinstance(given, str) else given)

QueueField = Annotated[Queue, _FROM_NAME]
RuntimeField = Annotated[Runtime, _FROM_NAME]
