"""Description of a training runtime, for lists, checks and users."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from trainjob.status.nested_fields import get_int, get_list, get_mapping, get_str
from trainjob.status.pods import NODE

# Trainer 2.3 pkg/constants/constants.go.
_FRAMEWORK = "trainer.kubeflow.org/framework"
_SUPPORT = "trainer.kubeflow.org/support"
_ROLE = "trainer.kubeflow.org/trainjob-ancestor-step"
_TRAINER = "trainer"


@dataclass(frozen=True)
class RuntimeStep:
    """One replicated job of a runtime.

    Attributes:
        name: name of the replicated job, such as `node`.
        role: part of a TrainJob that configures this step: `trainer`, `dataset-initializer`, `model-initializer`, or
            empty.
        containers: names of all its containers, including init containers.
        image: image of its main container. That is `node` in the trainer, otherwise the container with the name of its
            role, or the first container.
        resources: limits and requests of that container, such as `{"nvidia.com/gpu": "2"}`.
        claims: names of the resource claims of that container.
    """

    name: str
    role: str
    containers: tuple[str, ...]
    image: str
    resources: Mapping[str, str]
    claims: tuple[str, ...] = ()


@dataclass(frozen=True)
class RuntimeDescription:
    """Description of a ClusterTrainingRuntime or a TrainingRuntime.

    Attributes:
        name: name of the runtime.
        kind: `ClusterTrainingRuntime` or `TrainingRuntime`.
        namespace: namespace of a TrainingRuntime; empty for a ClusterTrainingRuntime.
        framework: value of its framework label, such as `torch` or `deepspeed`; empty without the label.
        policy: plugin of the Trainer that sets up the processes: `torch`, `mpi`, `jax`, `xgboost`, `flux`, or empty.
        num_nodes: number of nodes of a TrainJob that does not set it.
        deprecated: whether the runtime is deprecated.
        gang: gang scheduler of its pods: `coscheduling`, `volcano`, or empty.
        steps: its replicated jobs.
    """

    name: str
    kind: str
    namespace: str
    framework: str
    policy: str
    num_nodes: int
    deprecated: bool
    gang: str
    steps: tuple[RuntimeStep, ...]

    @property
    def trainer(self) -> RuntimeStep | None:
        """The step that a TrainJob's trainer configures; None if there is none."""
        return next((step for step in self.steps if step.role == _TRAINER), None)

    @property
    def initializers(self) -> tuple[str, ...]:
        """The names of the steps that fetch a dataset or a model before the training."""
        return tuple(step.name for step in self.steps if step.role.endswith("-initializer"))

    def to_dict(self) -> dict[str, Any]:
        """Return the description as JSON values."""
        return asdict(self)


def describe_runtime(runtime: Mapping[str, Any], kind: str = "ClusterTrainingRuntime") -> RuntimeDescription:
    """Return the description of a runtime.

    A field that is missing, or is of another type, reads as empty.

    Args:
        runtime: the runtime object.
        kind: kind of the object, because the items of a list do not have it everywhere.
    """
    policy, labels = get_mapping(runtime, "spec", "mlPolicy"), get_mapping(runtime, "metadata", "labels")
    return RuntimeDescription(
        name=get_str(runtime, "metadata", "name"),
        kind=kind,
        namespace=get_str(runtime, "metadata", "namespace"),
        framework=get_str(labels, _FRAMEWORK),
        policy=_only_key(policy, ignored="numNodes"),
        num_nodes=max(get_int(policy, "numNodes"), 1),
        deprecated=get_str(labels, _SUPPORT) == "deprecated",
        gang=_only_key(get_mapping(runtime, "spec", "podGroupPolicy")),
        steps=tuple(_describe_step(job) for job in get_list(runtime, "spec", "template", "spec", "replicatedJobs")),
    )


def _only_key(mapping: Mapping[str, Any], ignored: str = "") -> str:
    """Return the name of the only field that is set, or an empty string."""
    return next((key for key, value in mapping.items() if key != ignored and value is not None), "")


def _describe_step(job: Mapping[str, Any]) -> RuntimeStep:
    role = get_str(job, "template", "metadata", "labels", _ROLE)
    pod = get_mapping(job, "template", "spec", "template", "spec")
    containers = get_list(pod, "containers")
    main_name = NODE if role in (_TRAINER, "") else role
    main = next(
        (each for each in containers if get_str(each, "name") == main_name), containers[0] if containers else {}
    )
    amounts = {**get_mapping(main, "resources", "requests"), **get_mapping(main, "resources", "limits")}
    return RuntimeStep(
        name=get_str(job, "name"),
        role=role,
        containers=tuple(get_str(each, "name") for each in (*get_list(pod, "initContainers"), *containers)),
        image=get_str(main, "image"),
        resources={str(name): str(amount) for name, amount in amounts.items()},
        claims=tuple(get_str(claim, "name") for claim in get_list(main, "resources", "claims")),
    )
