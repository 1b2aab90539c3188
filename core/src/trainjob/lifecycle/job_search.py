"""Searches for the TrainJobs of a run key."""

from __future__ import annotations

from typing import Any

from trainjob.client import Cluster
from trainjob.lifecycle.identity import RunKey
from trainjob.manifest import labels


def list_labelled_jobs(cluster: Cluster, key: RunKey, namespace: str) -> list[dict[str, Any]]:
    """Return the TrainJobs of a namespace whose label is a run key's digest.

    Raises:
        NotFound: Kubeflow Trainer is not installed.
        ClusterError: the list request failed.
    """
    return cluster.list_trainjobs(namespace, f"{labels.RUN_KEY}={key.digest}")


def list_unlabelled_jobs(cluster: Cluster, key: RunKey, namespace: str) -> list[dict[str, Any]]:
    """Return the TrainJobs of a run key that have lost the label, by their annotation.

    Users and admission policies can remove all labels. The list contains only TrainJobs without the label, which are
    those that this project did not create, so it is short in most namespaces.

    Raises:
        NotFound: Kubeflow Trainer is not installed.
        ClusterError: the list request failed.
    """
    unlabelled = cluster.list_trainjobs(namespace, f"!{labels.RUN_KEY}")
    return [job for job in unlabelled if labels.get_annotation(job, labels.RUN_KEY) == key.canonical]
