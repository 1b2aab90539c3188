"""Searches for the TrainJobs of a run key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainjob.client import Cluster
from trainjob.lifecycle.identity import RunKey, is_attempt_of
from trainjob.manifest import labels


def list_labelled_jobs(
    cluster: Cluster, key: RunKey, namespace: str, on_other: Callable[[dict[str, Any]], None] = lambda _: None
) -> list[dict[str, Any]]:
    """Return the TrainJobs of a run key whose label has its digest.

    Args:
        cluster: the cluster of the TrainJobs.
        key: the run key.
        namespace: namespace of the TrainJobs.
        on_other: called with each TrainJob that has the label and was not created for the run key, such as a copy.

    Raises:
        NotFound: Kubeflow Trainer is not installed.
        ClusterError: the list request failed.
    """
    found = []
    for job in cluster.list_trainjobs(namespace, f"{labels.RUN_KEY}={key.digest}"):
        found.append(job) if is_attempt_of(job, key) else on_other(job)
    return found


def list_unlabelled_jobs(cluster: Cluster, key: RunKey, namespace: str) -> list[dict[str, Any]]:
    """Return the TrainJobs of a run key that have lost the label, by their annotation.

    Users and admission policies can remove all labels. The list contains only TrainJobs without the label, which are
    those that this project did not create, so it is short in most namespaces.

    Raises:
        NotFound: Kubeflow Trainer is not installed.
        ClusterError: the list request failed.
    """
    unlabelled = cluster.list_trainjobs(namespace, f"!{labels.RUN_KEY}")
    return [job for job in unlabelled if is_attempt_of(job, key)]
