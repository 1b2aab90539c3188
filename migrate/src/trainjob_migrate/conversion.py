"""Conversion of a Training Operator job (kubeflow.org/v1) to a TrainJob, field by field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainjob.manifest import Dialect
from trainjob.spec.base import to_json_value
from trainjob.spec.redaction import redact
from trainjob_migrate.draft import Draft, Finding
from trainjob_migrate.environment import Launch
from trainjob_migrate.field_records import FieldRecord, FieldRecorder, FieldResult
from trainjob_migrate.identity import UNSUPPORTED_KINDS, convert_identity, validate_job
from trainjob_migrate.jax import convert_jax
from trainjob_migrate.mpi import convert_mpi
from trainjob_migrate.pytorch import convert_pytorch
from trainjob_migrate.readiness import Readiness, classify_readiness
from trainjob_migrate.runtime import build_objects
from trainjob_migrate.tensorflow import convert_tensorflow
from trainjob_migrate.xgboost import convert_xgboost

__all__ = ["Conversion", "FieldRecord", "FieldResult", "Finding", "Launch", "Readiness", "convert"]

_CONVERTERS: Mapping[str, Callable[[Draft, Mapping[str, Any], Launch], None]] = {
    "PyTorchJob": convert_pytorch,
    "MPIJob": convert_mpi,
    "XGBoostJob": convert_xgboost,
    "JAXJob": convert_jax,
    "TFJob": convert_tensorflow,
}
"""Function per kind that converts its spec into a draft."""


@dataclass(frozen=True)
class Conversion:
    """The result of converting a job.

    Attributes:
        kind: kind of the source, such as `PyTorchJob`.
        name: name of the source.
        namespace: namespace of the source; None if the source does not set it.
        source: the source document.
        fields: the result of each field of the source, in its order.
        train_job: the TrainJob, exactly as it is to be applied; None if a field is refused.
        runtime: the TrainingRuntime to be applied before the TrainJob; None if a stock runtime is enough, or if a field
            is refused.
        findings: facts that the user should know before the job runs.
        readiness: how much of the job moves unchanged; for a refused job see `verdict`.
    """

    kind: str
    name: str
    namespace: str | None
    source: Mapping[str, Any]
    fields: tuple[FieldRecord, ...]
    train_job: dict[str, Any] | None
    runtime: dict[str, Any] | None
    findings: tuple[Finding, ...]
    readiness: Readiness

    @property
    def verdict(self) -> str:
        """`refused` if a field is refused, otherwise the class of the job."""
        return "refused" if self.blockers else self.readiness.value

    @property
    def blockers(self) -> tuple[FieldRecord, ...]:
        """The records of the refused fields."""
        return tuple(record for record in self.fields if record.result is FieldResult.REFUSED)

    def to_dict(self) -> dict[str, Any]:
        """Return the conversion as JSON values for reports.

        `***` replaces values that could be secrets, also in the new objects.
        """
        return {
            "kind": self.kind,
            "name": self.name,
            "namespace": self.namespace,
            "readiness": self.verdict,
            "blockers": [record.to_dict() for record in self.blockers],
            "findings": [finding.to_dict() for finding in self.findings],
            "fields": [record.to_dict() for record in self.fields],
            "train_job": redact(self.train_job),
            "runtime": redact(self.runtime),
        }


def convert(
    job: Mapping[str, Any], *, dialect: Dialect = Dialect.V2_2, launch: Launch = Launch.ENVIRONMENT
) -> Conversion:
    """Convert a v1 job to a TrainJob, and record the result of each field of the source.

    Args:
        job: a v1 document: `PyTorchJob`, `MPIJob`, `XGBoostJob`, `JAXJob`, `TFJob`.
        dialect: version of the TrainJob API; fields that it cannot patch go into the generated runtime.
        launch: how a program that reads the variables of the Training Operator gets them.

    Raises:
        InvalidSpec: the document is not a job of the Training Operator, or has no name.
    """
    job = to_json_value(job)
    kind, metadata = validate_job(job)
    recorder = FieldRecorder(job)
    draft = convert_identity(recorder, metadata, dialect)
    if kind in _CONVERTERS:
        _CONVERTERS[kind](draft, job, launch)
    else:
        recorder.mark_refused(("spec",), UNSUPPORTED_KINDS[kind])
        draft.findings.clear()  # they are about a TrainJob
    train_job, runtime = build_objects(draft)
    records = recorder.to_records()
    is_refused = any(record.result is FieldResult.REFUSED for record in records)
    return Conversion(
        kind=kind,
        name=draft.source_name,
        namespace=draft.namespace,
        source=job,
        fields=records,
        train_job=None if is_refused else train_job,
        runtime=None if is_refused else runtime,
        findings=tuple(draft.findings),
        readiness=classify_readiness(records, needs_runtime=draft.needs_runtime),
    )
