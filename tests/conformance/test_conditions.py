"""Every condition that a TrainJob can reach, with its reason and message."""

from __future__ import annotations

from trainjobs import conditions, finished, never_restarting, shell


def test_complete(client, namespace):
    """A job that ends well is Complete, AllJobsCompleted."""
    client.create(shell("echo hello"), namespace)
    job = client.until("TrainJob", namespace, "job", finished)
    assert conditions(job) == [("Complete", "True", "AllJobsCompleted", "jobset completed successfully")]


def test_failed(client, namespace):
    """A job whose pod fails is Failed, FailedJobs, and names its first failed Job."""
    client.create(shell("exit 3", runtime=never_restarting(client, namespace), kind="TrainingRuntime"), namespace)
    job = client.until("TrainJob", namespace, "job", finished)
    message = "jobset failed due to one or more job failures (first failed job: job-node-0)"
    assert conditions(job) == [("Failed", "True", "FailedJobs", message)]
