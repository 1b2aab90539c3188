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


def classify_readiness(lines: Iterable[FieldRecord], *, needs_runtime: bool = False) -> Readiness:
    """Return the class of a job, derived from the fates of its fields.

    Args:
        lines: the lines of the fields.
        needs_runtime: whether the job needs a generated runtime, even if none of the lines shows it.
    """
    found = Readiness.COMPLEX if needs_runtime else Readiness.SIMPLE
    for line in lines:
        if line.fate in (FieldResult.MOVED, FieldResult.REFUSED) or line.path.startswith("spec.elasticPolicy"):
            return Readiness.COMPLEX
        if line.target.startswith("spec.runtimePatches") and not needs_runtime:
            found = Readiness.STANDARD
    return found
