"""What a training runtime is: one reading of the object for lists, checks and people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from trainjob.status.reading import number, rows, table, text

# Trainer 2.3 pkg/constants/constants.go.
_FRAMEWORK = "trainer.kubeflow.org/framework"
_SUPPORT = "trainer.kubeflow.org/support"
_ROLE = "trainer.kubeflow.org/trainjob-ancestor-step"
_TRAINER = "trainer"
_NODE = "node"


@dataclass(frozen=True)
class RuntimeStep:
    """One replicated job of a runtime.

    Attributes:
        name: such as `node`.
        role: `trainer`, `dataset-initializer`, `model-initializer`, or empty: what of a TrainJob reaches it.
        containers: the names of all its containers, also those that only initialize.
        image: of its main container: `node` in the trainer, otherwise the one called like its role, or the first.
        resources: that container's limits and requests, such as `{"nvidia.com/gpu": "2"}`.
    """

    name: str
    role: str
    containers: tuple[str, ...]
    image: str
    resources: Mapping[str, str]


@dataclass(frozen=True)
class RuntimeDescription:
    """A ClusterTrainingRuntime or a TrainingRuntime.

    Attributes:
        name: its name.
        kind: `ClusterTrainingRuntime`, or `TrainingRuntime`.
        namespace: where; empty for a cluster's.
        framework: its label, such as `torch`, `torchtune`, `deepspeed`; empty without one.
        policy: the Trainer's plugin that sets its processes up: `torch`, `mpi`, `jax`, `xgboost`, `flux`, or empty.
        num_nodes: nodes of a TrainJob that says nothing.
        deprecated: whether it is to be removed.
        gang: what schedules its pods all at once: `coscheduling`, `volcano`, or empty.
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
        """The step that a TrainJob's trainer reaches; None where none does."""
        return next((step for step in self.steps if step.role == _TRAINER), None)

    @property
    def initializers(self) -> tuple[str, ...]:
        """The names of the steps that fetch a dataset or a model before the training."""
        return tuple(step.name for step in self.steps if step.role.endswith("-initializer"))

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def describe(runtime: Mapping[str, Any], kind: str = "ClusterTrainingRuntime") -> RuntimeDescription:
    """Read a runtime; what is missing in it, or is of another type, reads as empty.

    Args:
        runtime: the object.
        kind: what it is; the items of a list do not say it everywhere.
    """
    policy, marks = table(runtime, "spec", "mlPolicy"), table(runtime, "metadata", "labels")
    return RuntimeDescription(
        name=text(runtime, "metadata", "name"),
        kind=kind,
        namespace=text(runtime, "metadata", "namespace"),
        framework=text(marks, _FRAMEWORK),
        policy=_only_key(policy, besides="numNodes"),
        num_nodes=max(number(policy, "numNodes"), 1),
        deprecated=text(marks, _SUPPORT) == "deprecated",
        gang=_only_key(table(runtime, "spec", "podGroupPolicy")),
        steps=tuple(_step(job) for job in rows(runtime, "spec", "template", "spec", "replicatedJobs")),
    )


def _only_key(given: Mapping[str, Any], besides: str = "") -> str:
    """The one field that is set of several of which only one may be."""
    return next((key for key, value in given.items() if key != besides and value is not None), "")


def _step(job: Mapping[str, Any]) -> RuntimeStep:
    role, pod = text(job, "template", "metadata", "labels", _ROLE), table(job, "template", "spec", "template", "spec")
    containers = rows(pod, "containers")
    wanted = _NODE if role in (_TRAINER, "") else role
    main = next((one for one in containers if text(one, "name") == wanted), containers[0] if containers else {})
    amounts = {**table(main, "resources", "requests"), **table(main, "resources", "limits")}
    return RuntimeStep(
        name=text(job, "name"),
        role=role,
        containers=tuple(text(one, "name") for one in (*rows(pod, "initContainers"), *containers)),
        image=text(main, "image"),
        resources={str(name): str(amount) for name, amount in amounts.items()},
    )
