"""Conversion of Training Operator jobs to TrainJobs; pure functions."""

from trainjob_migrate.conversion import Conversion, Fate, Finding, Launch, Line, Readiness, convert

__all__ = ["Conversion", "Fate", "Finding", "Launch", "Line", "Readiness", "convert"]
