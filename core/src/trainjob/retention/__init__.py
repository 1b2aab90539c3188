"""Deletion of finished and abandoned TrainJobs: the policy and the sweep."""

from trainjob.retention.sweeping import SweepResult, sweep

__all__ = ["SweepResult", "sweep"]
