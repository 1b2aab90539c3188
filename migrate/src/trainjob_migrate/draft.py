"""The draft of a TrainJob, which the conversion rules of each kind fill."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from trainjob.manifest import Dialect
from trainjob.spec.trainer_versions import API_VERSION
from trainjob_migrate.field_records import FieldRecorder, Path


@dataclass(frozen=True)
class Finding:
    """A fact that the user should know before the job runs.

    Attributes:
        topic: one word, such as `environment`; the same word for the same topic in every report.
        what: the fact that was found.
        why: its consequence.
        done: what the conversion did about it, or what the user has to do.
    """

    topic: str
    what: str
    why: str
    done: str

    def to_dict(self) -> dict[str, str]:
        """Return the finding as JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class RuntimeShape:
    """The runtime for the jobs of a kind, and the template for generated runtimes.

    Attributes:
        runtime: name of the stock ClusterTrainingRuntime; empty if no stock runtime is suitable.
        framework: value of the label `trainer.kubeflow.org/framework`.
        policy: the runtime's `mlPolicy`.
        roles: name of the container by replicated job.
        trainer: the replicated job to which `spec.trainer` applies.
        jobset: spec of the JobSet, without the replicated jobs.
        depends_on: `dependsOn` by replicated job.
    """

    runtime: str
    framework: str
    policy: Mapping[str, Any]
    roles: Mapping[str, str]
    trainer: str = "node"
    jobset: Mapping[str, Any] = field(default_factory=dict)
    depends_on: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_uniform_pods(self) -> bool:
        """Return whether all pods are alike, so that `spec.trainer` applies to each of them."""
        return len(self.roles) == 1


TORCH = RuntimeShape("torch-distributed", "torch", {"numNodes": 1, "torch": {}}, {"node": "node"})
"""Shape of the runtime in Trainer 2.3 manifests/base/runtimes/torch_distributed.yaml."""


@dataclass(frozen=True)
class Part:
    """A value for the pods or Jobs of the new job.

    Its final object, TrainJob or TrainingRuntime, is known only when all parts are collected.

    Attributes:
        path: path of the field in the source.
        target: target path, from the replicated job: `("pod", "spec", …)`, `("pod", "metadata", …)`,
            `("container", …)`, or `("job", …)` below the Job's spec.
        value: value for the target; lists are joined, mappings merged.
        patchable: whether a TrainJob may patch it; otherwise the job needs a runtime of its own.
        reason: reason for the record.
        role: the replicated job.
        default: whether another part for the same place takes precedence.
    """

    path: Path
    target: tuple[str, ...]
    value: Any
    patchable: bool
    reason: str = ""
    role: str = "node"
    default: bool = False


def _rename_nothing(value: Any, _: object = "") -> Any:
    return value


@dataclass
class Draft:
    """The state of a conversion.

    Attributes:
        fields: the recorder of the source's fields.
        source_name: name of the v1 job.
        name: name of the TrainJob.
        namespace: namespace of the TrainJob; None if the source does not set it.
        dialect: version of the TrainJob API.
        shape: the runtime on which the job runs.
        metadata: labels and annotations of the TrainJob.
        trainer: `spec.trainer`.
        spec: the other fields of the TrainJob's spec.
        parts: values for pods and Jobs.
        findings: facts that the user should know.
        environment: variables that replace those of the old operator; they are appended to `spec.trainer.env`.
        reserved: variables that a job may not set, with the reason for each.
        field_reasons: by field of the container, what was changed in it; for the record of the field.
        rename_hosts: function that replaces the old host names by the new ones in a text or a list of words. It takes
            the value, and the option or variable whose value it is.
        host_pattern: pattern of the old host names; by default it matches nothing.
        added_volumes: names of the volumes that the Trainer or the conversion adds to the pod that is converted.
        has_one_kind: whether the replicas of v1 have the same indexes as the TrainJob's nodes.
    """

    fields: FieldRecorder
    source_name: str
    name: str
    namespace: str | None
    dialect: Dialect = Dialect.V2_2
    shape: RuntimeShape = TORCH
    metadata: dict[str, Any] = field(default_factory=dict)
    trainer: dict[str, Any] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    environment: list[dict[str, Any]] = field(default_factory=list)
    reserved: dict[str, str] = field(default_factory=dict)
    field_reasons: dict[str, str] = field(default_factory=dict)
    rename_hosts: Callable[..., Any] = _rename_nothing
    host_pattern: re.Pattern[str] = re.compile("(?!)")
    added_volumes: frozenset[str] = frozenset()
    has_one_kind: bool = False

    @property
    def can_patch(self) -> bool:
        """Return whether the TrainJob can patch its pods.

        Before Trainer 2.2 a TrainJob cannot patch everything, so a generated runtime holds all values.
        """
        return self.dialect is Dialect.V2_2

    def add_finding(self, topic: str, what: str, why: str, done: str) -> None:
        """Add a finding, unless the same finding exists already."""
        finding = Finding(topic, what, why, done)
        if finding not in self.findings:
            self.findings.append(finding)

    def add_part(self, path: Path, target: tuple[str, ...], value: Any, *, patchable: bool, **more: Any) -> None:
        """Add a value for the pods or Jobs; `more` are the other fields of `Part`."""
        self.parts.append(Part(path, target, value, patchable, **more))

    @property
    def needs_runtime(self) -> bool:
        """Return whether the job needs a generated runtime.

        This is the case if the kind has no stock runtime, or if a TrainJob may not patch one of the parts.
        """
        return not self.shape.runtime or any(not part.patchable for part in self.parts)

    def build_trainjob(self, runtime_name: str | None, patches: Mapping[str, Any]) -> dict[str, Any]:
        """Build the TrainJob.

        Args:
            runtime_name: name of the generated runtime; None for the stock runtime.
            patches: fields of the spec that patch the runtime.
        """
        kind = "TrainingRuntime" if runtime_name else "ClusterTrainingRuntime"
        reference = {"apiGroup": "trainer.kubeflow.org", "kind": kind, "name": runtime_name or self.shape.runtime}
        metadata = {"name": self.name, **({"namespace": self.namespace} if self.namespace else {}), **self.metadata}
        env = [*self.trainer.get("env", []), *self.environment]
        trainer = {**self.trainer, **({"env": env} if env else {})}
        spec = {"runtimeRef": reference, "trainer": trainer, **patches, **self.spec}
        return {"apiVersion": API_VERSION, "kind": "TrainJob", "metadata": metadata, "spec": spec}
