"""Resources, placement and runtime of a step."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, field_validator, model_validator
from typing_extensions import Self

from trainjob.framework_modules import load_modules
from trainjob.spec.base import Spec, invalid_field
from trainjob.spec.kubernetes_values import POD_SPEC, as_in_kubernetes
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
_PARSED_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?)([numkMGTPE]|[KMGTPE]i|)")
_DECIMAL_EXPONENTS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_WHOLE_NUMBER = re.compile(r"[0-9]{1,9}(\.0{1,18})?")
CLAIMS_ADVICE = (
    "no Trainer up to 2.3 passes on the claims of a TrainJob: use a training runtime with the claims, and give no "
    "resources_per_node, with which the Trainer drops those of the runtime"
)
"""Advice for resource claims of a TrainJob (Trainer 2.0 plugins/jobset/builder.go, 2.3 core/trainingruntime.go)."""
BUILTIN_MODELS = ("llama3.2-1b", "llama3.2-3b", "llama3.3-70b", "qwen2.5-1.5b")
"""Models of the Trainer's built-in trainer (Trainer 2.3, pkg/runtime/framework/plugins/torch)."""


def _validate_amounts(value: Any) -> Any:
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


Amounts = Annotated[Mapping[str, str], BeforeValidator(_validate_amounts)]
"""Quantity of each resource, by the resource's name.

`gpu` means `nvidia.com/gpu`, `mig-1g.5gb` means `nvidia.com/mig-1g.5gb`.
"""


class ResourceRequirements(Spec):
    """Requests of resources that differ from their limits.

    Attributes:
        requests: quantity of each resource that is reserved.
        limits: quantity of each resource that may be used; by default there is no limit.
    """

    requests: Amounts = Field(default_factory=dict)
    limits: Amounts = Field(default_factory=dict)

    @model_validator(mode="after")
    def _validate_amounts(self) -> Self:
        limits = resolve_resources(self.limits)
        for name, amount in resolve_resources(self.requests).items():
            if name in limits and parse_quantity(amount) > parse_quantity(limits[name]):
                raise invalid_field(f"requests.{name}", amount, f"the limit is {limits[name]}: request at most that")
            if "/" in name and limits.get(name, amount) != amount:
                raise invalid_field(f"requests.{name}", amount, f"devices are not shared: request {limits[name]}")
        return self


def _validate_resources(value: Any) -> Any:
    if isinstance(value, Mapping) and value.get("claims"):
        raise invalid_field("claims", value["claims"], CLAIMS_ADVICE)
    is_nested = isinstance(value, Mapping) and set(value) & set(ResourceRequirements.model_fields)
    return ResourceRequirements.from_object(value) if is_nested else _validate_amounts(value)


Resources = Annotated[ResourceRequirements | Mapping[str, str], BeforeValidator(_validate_resources)]
"""Resources of each node: a quantity by name, which is request and limit, or a `ResourceRequirements`."""


def parse_quantity(amount: Any) -> Any:
    """Return a Kubernetes quantity as an exact number; another value is returned unchanged."""
    found = _PARSED_QUANTITY.fullmatch(str(amount))
    if found is None:
        return amount
    suffix = found[2]
    power = "KMGTPE".find(suffix[:1]) + 1 if suffix.endswith("i") else 0
    scale = Fraction(1024**power) if power else Fraction(10) ** _DECIMAL_EXPONENTS[suffix]
    return Fraction(found[1]) * scale


def resolve_resources(resources: ResourceRequirements | Mapping[str, str] | None) -> dict[str, str]:
    """Return the quantity of each resource by its Kubernetes name.

    It is the limit, or the request if there is no limit.
    """
    if isinstance(resources, ResourceRequirements):
        return {**resolve_resources(resources.requests), **resolve_resources(resources.limits)}
    return {resolve_resource_name(name): amount for name, amount in (resources or {}).items()}


def resolve_resource_name(name: str) -> str:
    """Return the Kubernetes name of a resource, also for a short name of the SDK.

    Upper and lower case count as the same in a short name only (kubeflow SDK 0.5, get_resources_per_node). Other names
    are unchanged, because Kubernetes distinguishes them, as in `hugepages-2Mi`.
    """
    plain = name.lower()
    return f"nvidia.com/{plain}" if plain.startswith("mig-") else _SHORT_NAMES.get(plain, name)


def count_gpus(resources: ResourceRequirements | Mapping[str, str] | None) -> int:
    """Return the number of GPUs on a node, counted as the Trainer's torch plugin does.

    The plugin counts resources with `gpu` in their names, so MIG slices do not count (Trainer 2.3,
    pkg/runtime/framework/plugins/torch).
    """
    counted = (amount for name, amount in resolve_resources(resources).items() if "gpu" in name.lower())
    return sum(int(float(amount)) for amount in counted if _WHOLE_NUMBER.fullmatch(amount))


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
    tolerations: Annotated[Sequence[Mapping[str, Any]], as_in_kubernetes(f"{POD_SPEC}.tolerations")] = ()
    affinity: Annotated[Mapping[str, Any], as_in_kubernetes(f"{POD_SPEC}.affinity")] = Field(default_factory=dict)
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


def is_stock_builtin(name: str, kind: str = "ClusterTrainingRuntime") -> bool:
    """Return whether a runtime is one that the Trainer ships for a built-in trainer.

    The package of a framework that is a built-in trainer has a module `builtin_trainer`, whose `STOCK_RUNTIMES` is the
    start of the names of these runtimes.

    All of these runtimes run both initializers. Their JobSets cannot be changed after their creation (Trainer 2.3.0
    with JobSet 0.12.0).
    """
    return kind == "ClusterTrainingRuntime" and name.startswith(_list_starts())


def get_builtin_example() -> str:
    """Return the name of such a runtime, for messages."""
    return f"{_list_starts()[0]}{BUILTIN_MODELS[0]}"


def _list_starts() -> tuple[str, ...]:
    return tuple(module.STOCK_RUNTIMES for module in load_modules("builtin_trainer"))


_FROM_NAME = BeforeValidator(lambda given: {"name": given} if isinstance(given, str) else given)

RuntimeField = Annotated[Runtime, _FROM_NAME]
