"""Deletion of finished and abandoned TrainJobs: which ones may go, and the sweep that deletes them."""

from trainjob.retention.sweeping import Swept, sweep

__all__ = ["Swept", "sweep"]
