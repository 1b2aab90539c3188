"""Readiness classes of a migration plan: how much of a job moves unchanged."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from trainjob_migrate.field_records import FieldRecord, FieldResult


class Readiness(str, Enum):
    """A class of jobs, by the needs of their TrainJobs."""

    SIMPLE = "simple"
    """Only fields of `spec.trainer` and of the run policy: a stock runtime without patches."""
    STANDARD = "standard"
    """Also patches of the stock runtime's pods: volumes, placement, service account."""
    COMPLEX = "complex"
    """A generated TrainingRuntime, an elastic job, or a decision that the user has to make."""


def classify_readiness(records: Iterable[FieldRecord], *, needs_runtime: bool = False) -> Readiness:
    """Return the class of a job, derived from the results of its fields.

    Args:
        records: the records of the fields.
        needs_runtime: whether the job needs a generated runtime, even if none of the records shows it.
    """
    found = Readiness.COMPLEX if needs_runtime else Readiness.SIMPLE
    for record in records:
        if record.result in (FieldResult.MOVED, FieldResult.REFUSED) or record.path.startswith("spec.elasticPolicy"):
            return Readiness.COMPLEX
        if record.target.startswith("spec.runtimePatches") and not needs_runtime:
            found = Readiness.STANDARD
    return found
