"""Pure functions that build the TrainJob to send from a request."""

from trainjob.manifest import labels
from trainjob.manifest.adaptation import adapt_manifest
from trainjob.manifest.additions import add_env
from trainjob.manifest.build import build_trainjob
from trainjob.manifest.compatibility import get_required_claim, list_unsupported_features, requires_newest_dialect
from trainjob.manifest.dialect import Dialect, detect_dialect
from trainjob.manifest.identity import find_attempt, job_name, spec_hash
from trainjob.manifest.steps import to_trainjob
from trainjob.manifest.training_identity import training_hash, weight_fields

__all__ = [
    "Dialect",
    "adapt_manifest",
    "add_env",
    "build_trainjob",
    "detect_dialect",
    "find_attempt",
    "get_required_claim",
    "job_name",
    "labels",
    "list_unsupported_features",
    "requires_newest_dialect",
    "spec_hash",
    "to_trainjob",
    "training_hash",
    "weight_fields",
]
