"""Deletion of finished and abandoned TrainJobs: the policy and the sweep."""

from trainjob.retention.sweeping import Swept, sweep

__all__ = ["Swept", "sweep"]
