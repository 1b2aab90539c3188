"""Pure functions that build the TrainJob to send from a request."""

from trainjob.manifest import labels
from trainjob.manifest.build import build
from trainjob.manifest.dialect import Dialect, dialect_of
from trainjob.manifest.given import with_variables
from trainjob.manifest.identity import job_name, spec_hash
from trainjob.manifest.limits import missing_from, needed_claim, needs_the_dialect
from trainjob.manifest.steps import train_job

__all__ = [
    "Dialect",
    "build",
    "dialect_of",
    "job_name",
    "labels",
    "missing_from",
    "needed_claim",
    "needs_the_dialect",
    "spec_hash",
    "train_job",
    "with_variables",
]
