"""From a job of the Training Operator (kubeflow.org/v1) to a TrainJob, with a line for each of its fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainjob.manifest import Dialect
from trainjob.spec.base import as_json
from trainjob.spec.redaction import shown
from trainjob_migrate.draft import Draft, Finding
from trainjob_migrate.environment import Launch
from trainjob_migrate.identity import checked_job, convert_identity
from trainjob_migrate.jax import convert_jax
from trainjob_migrate.ledger import Fate, Ledger, Line
from trainjob_migrate.mpi import convert_mpi
from trainjob_migrate.pytorch import convert_pytorch
from trainjob_migrate.readiness import Readiness, readiness
from trainjob_migrate.runtime import finished
from trainjob_migrate.xgboost import convert_xgboost

__all__ = ["Conversion", "Fate", "Finding", "Launch", "Line", "Readiness", "convert"]

_RULES: Mapping[str, Callable[[Draft, Mapping[str, Any], Launch], None]] = {
    "PyTorchJob": convert_pytorch,
    "MPIJob": convert_mpi,
    "XGBoostJob": convert_xgboost,
    "JAXJob": convert_jax,
}
"""What turns each kind's spec into a draft."""
_WITHOUT_A_WAY = {
    "TFJob": "the Trainer has no runtime for TensorFlow's parameter servers, chiefs and TF_CONFIG; keep the Training "
    "Operator for it, or port the training to another framework",
    "PaddleJob": "the Trainer has no runtime for PaddlePaddle; keep the Training Operator for it",
    "MXJob": "the Trainer has no runtime for MXNet, which has been retired",
}


@dataclass(frozen=True)
class Conversion:
    """What became of a job.

    Attributes:
        kind: of the source, such as `PyTorchJob`.
        name: of the source.
        namespace: of the source; None where it says nothing.
        source: the document.
        lines: what became of each of its fields.
        train_job: exactly what is to be applied; None when something is refused.
        runtime: the TrainingRuntime to be applied before it; None where a stock runtime is enough, or nothing is made.
        findings: what a person should know before it runs.
        readiness: how much of it moves as it is.
    """

    kind: str
    name: str
    namespace: str | None
    source: Mapping[str, Any]
    lines: tuple[Line, ...]
    train_job: dict[str, Any] | None
    runtime: dict[str, Any] | None
    findings: tuple[Finding, ...]
    readiness: Readiness

    @property
    def blockers(self) -> tuple[Line, ...]:
        """The lines of what is refused."""
        return tuple(line for line in self.lines if line.fate is Fate.REFUSED)

    def to_dict(self) -> dict[str, Any]:
        """The conversion as JSON, for reports: `***` stands for what could be a secret, in the new objects too."""
        return {
            "kind": self.kind,
            "name": self.name,
            "namespace": self.namespace,
            "readiness": self.readiness.value,
            "blockers": [line.to_dict() for line in self.blockers],
            "findings": [finding.to_dict() for finding in self.findings],
            "lines": [line.to_dict() for line in self.lines],
            "train_job": shown(self.train_job),
            "runtime": shown(self.runtime),
        }


def convert(
    job: Mapping[str, Any], *, dialect: Dialect = Dialect.V2_2, launch: Launch = Launch.ENVIRONMENT
) -> Conversion:
    """The TrainJob for a v1 job, and what became of each field.

    Args:
        job: a v1 document: `PyTorchJob`, `MPIJob`, `XGBoostJob`, `JAXJob`.
        dialect: the shape of the TrainJob API; what it can't patch goes into the generated runtime.
        launch: how a program that relies on the variables of the Training Operator is to get them.

    Raises:
        InvalidSpec: it is no job of the Training Operator, or has no name.
    """
    job = as_json(job)
    kind, metadata = checked_job(job)
    ledger = Ledger(job)
    draft = convert_identity(ledger, metadata, dialect)
    if kind in _RULES:
        _RULES[kind](draft, job, launch)
    else:
        ledger.refused(("spec",), _WITHOUT_A_WAY[kind])
    train_job, runtime = finished(draft)
    lines = ledger.lines()
    is_refused = any(line.fate is Fate.REFUSED for line in lines)
    return Conversion(
        kind=kind,
        name=draft.source_name,
        namespace=draft.namespace,
        source=job,
        lines=lines,
        train_job=None if is_refused else train_job,
        runtime=None if is_refused else runtime,
        findings=tuple(draft.findings),
        readiness=readiness(lines, needs_runtime=draft.needs_runtime),
    )
