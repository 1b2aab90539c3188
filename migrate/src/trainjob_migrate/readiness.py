"""How much of a job moves as it is: the classes of a migration plan."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from trainjob_migrate.ledger import Fate, Line


class Readiness(str, Enum):
    """A class of jobs, by what their TrainJobs need."""

    SIMPLE = "simple"
    """Only fields of `spec.trainer` and of the run: a stock runtime and no patches."""
    STANDARD = "standard"
    """Patches of the stock runtime's pods as well: volumes, placement, service account."""
    COMPLEX = "complex"
    """A TrainingRuntime of its own, an elastic job, or something that a person has to decide first."""


def readiness(lines: Iterable[Line], *, needs_runtime: bool = False) -> Readiness:
    """The class of a job from what became of its fields, and whether it needs a runtime even for what it leaves out."""
    found = Readiness.COMPLEX if needs_runtime else Readiness.SIMPLE
    for line in lines:
        if line.fate in (Fate.MOVED, Fate.REFUSED) or line.path.startswith("spec.elasticPolicy"):
            return Readiness.COMPLEX
        if line.target.startswith("spec.runtimePatches") and not needs_runtime:
            found = Readiness.STANDARD
    return found
