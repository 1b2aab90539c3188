"""A TrainJob in the making: what the rules for a kind write into."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from trainjob.manifest import Dialect
from trainjob.spec.manifest import API_VERSION
from trainjob_migrate.ledger import Ledger, Path


@dataclass(frozen=True)
class Finding:
    """Something a person should know before the job runs.

    Attributes:
        topic: one word, the same for the same matter in every report, such as `environment`.
        what: what was found.
        why: what would happen with it.
        done: what was done about it here, or is to be done.
    """

    topic: str
    what: str
    why: str
    done: str

    def to_dict(self) -> dict[str, str]:
        """The finding as JSON has it."""
        return asdict(self)


@dataclass(frozen=True)
class Shape:
    """The runtime that a kind's jobs run on, and what one that is generated is made like.

    Attributes:
        runtime: the stock ClusterTrainingRuntime; empty where none will do.
        framework: its label `trainer.kubeflow.org/framework`.
        policy: its `mlPolicy`.
        roles: replicated job -> its container.
        trainer: the replicated job that takes `spec.trainer`.
        jobset: its JobSet's spec, but for the replicated jobs.
        waits: replicated job -> its `dependsOn`.
    """

    runtime: str
    framework: str
    policy: Mapping[str, Any]
    roles: Mapping[str, str]
    trainer: str = "node"
    jobset: Mapping[str, Any] = field(default_factory=dict)
    waits: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_of_equals(self) -> bool:
        """Whether all its pods are alike, so that `spec.trainer` speaks for each of them."""
        return len(self.roles) == 1


TORCH = Shape("torch-distributed", "torch", {"numNodes": 1, "torch": {}}, {"node": "node"})
"""Trainer 2.3 manifests/base/runtimes/torch_distributed.yaml."""


@dataclass(frozen=True)
class Part:
    """Something for the pods, Jobs or JobSet of the new job; where it goes is known when all are there.

    Attributes:
        path: where it stands in the source.
        place: where it goes, from the replicated job: `("pod", "spec", …)`, `("pod", "metadata", …)`,
            `("container", …)`, `("job", …)` below the Job's spec, `("jobset", "metadata", …)`,
            or `("runtime", …)` below the TrainingRuntime's spec.
        value: what goes there; lists are joined, mappings merged.
        patchable: whether a TrainJob may patch it; what it may not needs a runtime of its own.
        reason: for the line.
        role: the replicated job.
        default: whether another part for the same place counts more.
    """

    path: Path
    place: tuple[str, ...]
    value: Any
    patchable: bool
    reason: str = ""
    role: str = "node"
    default: bool = False


@dataclass
class Draft:
    """What has been made of a job so far.

    Attributes:
        ledger: of the source.
        source_name: what the v1 job is called.
        name: what the TrainJob is called.
        namespace: where it goes; None where the source says nothing.
        dialect: the shape of the API.
        shape: the runtime it is for.
        metadata: labels and annotations of the TrainJob.
        trainer: `spec.trainer`.
        spec: the other fields of the TrainJob's spec.
        parts: what is for pods, Jobs and JobSet.
        findings: what a person should know.
        environment: variables that are set in place of what the old operator set; they end `spec.trainer.env`.
        reserved: variables that a job may not set, and why.
        reasons: field of the container -> what was done to it, for its line.
        rename: puts the new hosts in place of the old ones, in any value.
    """

    ledger: Ledger
    source_name: str
    name: str
    namespace: str | None
    dialect: Dialect = Dialect.V2_2
    shape: Shape = TORCH
    metadata: dict[str, Any] = field(default_factory=dict)
    trainer: dict[str, Any] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    environment: list[dict[str, Any]] = field(default_factory=list)
    reserved: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    rename: Callable[[Any], Any] = copy.deepcopy

    @property
    def can_patch(self) -> bool:
        """Whether a TrainJob can change its pods here; before 2.2 it can't in every way, and a runtime has it all."""
        return self.dialect is Dialect.V2_2

    def find(self, topic: str, what: str, why: str, done: str) -> None:
        """Tell a person something; the same thing once."""
        finding = Finding(topic, what, why, done)
        if finding not in self.findings:
            self.findings.append(finding)

    def part(self, path: Path, place: tuple[str, ...], value: Any, *, patchable: bool, **more: Any) -> None:
        """Put something into the pods, Jobs or JobSet; `more` are `Part`'s other fields."""
        self.parts.append(Part(path, place, value, patchable, **more))

    @property
    def needs_runtime(self) -> bool:
        """Whether a stock runtime with patches can't be enough."""
        return not self.shape.runtime or any(not part.patchable for part in self.parts)

    def train_job(self, runtime_name: str | None, patches: Mapping[str, Any]) -> dict[str, Any]:
        """The TrainJob on the generated runtime of that name, or on the stock one with these patches."""
        kind = "TrainingRuntime" if runtime_name else "ClusterTrainingRuntime"
        reference = {"apiGroup": "trainer.kubeflow.org", "kind": kind, "name": runtime_name or self.shape.runtime}
        metadata = {"name": self.name, **({"namespace": self.namespace} if self.namespace else {}), **self.metadata}
        env = [*self.trainer.get("env", []), *self.environment]
        trainer = {**self.trainer, **({"env": env} if env else {})}
        spec = {"runtimeRef": reference, "trainer": trainer, **patches, **self.spec}
        return {"apiVersion": API_VERSION, "kind": "TrainJob", "metadata": metadata, "spec": spec}
