"""Ending a TrainJob that nobody wants any more."""

from __future__ import annotations

from trainjob.cluster import Cluster
from trainjob.run.identity import JobReference


def cancel(cluster: Cluster, reference: JobReference) -> bool:
    """Delete exactly this TrainJob, with its pods; safe to repeat, and safe when its name is in use again.

    Returns:
        False when it was gone already.

    Raises:
        ClusterError: the cluster can't be asked, or does not allow it; the job goes on.
    """
    return cluster.delete_trainjob(reference.name, reference.namespace, reference.uid)
