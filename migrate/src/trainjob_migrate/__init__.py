"""Conversion of Training Operator jobs to TrainJobs; pure functions."""

from importlib.metadata import version

from trainjob_migrate.conversion import Conversion, FieldRecord, FieldResult, Finding, Launch, Readiness, convert

__all__ = ["Conversion", "FieldRecord", "FieldResult", "Finding", "Launch", "Readiness", "convert"]
__version__ = version("trainjob-migrate")
