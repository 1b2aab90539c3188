"""What a step asks of a node, and where it runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator

from trainjob.spec.base import Spec, refuse

# Kubernetes quantities: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
_QUANTITY = re.compile(r"\d+(\.\d+)?(m|[kMGTPE]i?|[eE][-+]?\d+)?")
_RESOURCE = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PLAIN = re.compile(r"cpu|memory|ephemeral-storage|storage|gpu|mig-.+|hugepages-.+", re.IGNORECASE)
_WHOLE = re.compile(r"\d+(\.0+)?")
_DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


def _checked_resources(given: Any) -> Any:
    if not isinstance(given, Mapping):
        return given
    for name, amount in given.items():
        known = str(name)
        if not _RESOURCE.fullmatch(known) or not ("/" in known or _PLAIN.fullmatch(known)):
            raise refuse(known, amount, "it is no resource's name; such as cpu, memory, gpu or vendor.example/device")
        if isinstance(amount, bool) or not _QUANTITY.fullmatch(str(amount)):
            raise refuse(known, amount, "it must be a quantity such as 2, 500m or 16Gi")
        if "/" in resource_name(known) and not _WHOLE.fullmatch(str(amount)):
            raise refuse(known, amount, "devices are counted in whole numbers, such as 1")
    _refuse_mixed_gpus(given)
    return {str(name): str(amount) for name, amount in given.items()}


def _refuse_mixed_gpus(given: Mapping[Any, Any]) -> None:
    """One kind of GPU a node: whole ones or slices of one size (kubeflow SDK 0.5, get_resources_per_node)."""
    names = {resource_name(str(name)) for name in given}
    slices = sorted(name for name in names if name.startswith("nvidia.com/mig-"))
    if len(slices) > 1 or (slices and "nvidia.com/gpu" in names):
        raise refuse("", sorted(names), "give whole GPUs, or MIG slices of one size, not several kinds")


Resources = Annotated[Mapping[str, str], BeforeValidator(_checked_resources)]
"""Resource -> quantity for each node; `gpu` means `nvidia.com/gpu`, `mig-1g.5gb` means `nvidia.com/mig-1g.5gb`."""


def resource_name(name: str) -> str:
    """The name Kubernetes knows, for the SDK's short ones (kubeflow SDK 0.5, get_resources_per_node)."""
    plain = name.lower()
    if not _PLAIN.fullmatch(plain):
        return name
    if plain.startswith("mig-"):
        return f"nvidia.com/{plain}"
    return {"gpu": "nvidia.com/gpu", "storage": "ephemeral-storage"}.get(plain, plain)


def gpus(resources: Mapping[str, str] | None) -> int:
    """How many GPUs a node has, as the Trainer's torch plugin counts: resources with `gpu` in their names.

    MIG slices count as none there (Trainer 2.3, pkg/runtime/framework/plugins/torch).
    """
    known = {resource_name(name): amount for name, amount in (resources or {}).items()}
    counted = (amount for name, amount in known.items() if "gpu" in name.lower())
    return sum(int(float(amount)) for amount in counted if _WHOLE.fullmatch(amount))


class Workspace(Spec):
    """An existing PersistentVolumeClaim, mounted at `/workspace`: `dataset/`, `model/`, `output/`.

    A plain string stands for the claim's name.

    Attributes:
        claim: the claim's name.
    """

    claim: str

    @field_validator("claim")
    @classmethod
    def _is_a_name(cls, claim: str) -> str:
        if len(claim) > 253 or not _DNS_NAME.fullmatch(claim):
            raise refuse("", claim, "it must be the name of a PersistentVolumeClaim: lower case letters, digits and -")
        return claim


class Queue(Spec):
    """A Kueue LocalQueue; a plain string stands for its name.

    Attributes:
        name: the LocalQueue, in the TrainJob's namespace.
        priority_class: a WorkloadPriorityClass.
    """

    name: str
    priority_class: str = ""

    @field_validator("name", "priority_class")
    @classmethod
    def _is_a_name(cls, name: str) -> str:
        if name and (len(name) > 63 or not _DNS_NAME.fullmatch(name)):
            raise refuse("", name, "it must be a Kubernetes name of at most 63 characters")
        return name


class Placement(Spec):
    """Where the pods of a step may run, and as whom.

    Attributes:
        node_selector: labels that a node must have.
        tolerations: as in a pod's spec.
        affinity: as in a pod's spec.
        service_account_name: the pods' service account.
        image_pull_secrets: names of Secrets to pull images with.
    """

    node_selector: Mapping[str, str] = Field(default_factory=dict)
    tolerations: Sequence[Mapping[str, Any]] = ()
    affinity: Mapping[str, Any] = Field(default_factory=dict)
    service_account_name: str = ""
    image_pull_secrets: Sequence[str] = ()


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
    def _is_a_kind(cls, kind: Any) -> Any:
        kind = getattr(kind, "value", kind)
        if kind not in ("ClusterTrainingRuntime", "TrainingRuntime"):
            raise refuse("", kind, "allowed are ClusterTrainingRuntime and TrainingRuntime")
        return kind


def _from_string(field: str) -> BeforeValidator:
    return BeforeValidator(lambda given: {field: given} if isinstance(given, str) else given)


WorkspaceField = Annotated[Workspace, _from_string("claim")]
QueueField = Annotated[Queue, _from_string("name")]
RuntimeField = Annotated[Runtime, _from_string("name")]
