"""Delivery of a TrainJob's result to the workflow engine."""

from __future__ import annotations

from datetime import datetime, timezone

from trainjob.client import Cluster
from trainjob.lifecycle.identity import JobReference
from trainjob.manifest import labels


def mark_delivered(cluster: Cluster, reference: JobReference) -> None:
    """Record on a TrainJob that a step has ended with its result.

    Call it after the workflow engine has stored the end of the step. A crash before that leaves the TrainJob without
    the mark, and [submit][] with `adopt_undelivered` adopts it. A lost mark has the same effect.

    Args:
        cluster: the cluster of the TrainJob.
        reference: the TrainJob.

    Raises:
        ClusterError: a request failed or was denied, or the TrainJob does not exist any more.
    """
    delivered_at = {labels.DELIVERED: datetime.now(timezone.utc).isoformat()}
    cluster.patch_trainjob(reference.name, reference.namespace, reference.uid, annotations=delivered_at)
