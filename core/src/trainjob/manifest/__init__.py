"""From what is asked for to the TrainJob that is sent: pure functions."""

from trainjob.manifest import labels
from trainjob.manifest.build import build
from trainjob.manifest.dialect import Dialect
from trainjob.manifest.fingerprint import spec_hash
from trainjob.manifest.names import job_name
from trainjob.manifest.steps import train_job

__all__ = ["Dialect", "build", "job_name", "labels", "spec_hash", "train_job"]
