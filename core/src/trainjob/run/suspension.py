"""Pausing a TrainJob and letting it go on."""

from __future__ import annotations

from trainjob.cluster import Cluster
from trainjob.errors import Conflict, NotFound
from trainjob.status import judge
from trainjob.status.verdict import QUEUE_LABEL


def set_suspended(cluster: Cluster, name: str, namespace: str, *, suspended: bool) -> bool:
    """Suspend a TrainJob, or resume it; safe to repeat.

    A suspended TrainJob loses its pods and keeps its claims and finished initializers; the training starts from the
    beginning when it goes on (Trainer 2.3).

    Returns:
        False when there was nothing to do: it has ended, or is that way already.

    Raises:
        NotFound: there is no such TrainJob.
        Conflict: it belongs to a Kueue queue, which undoes the flag within 0.2 s (Kueue 0.17).
        ClusterError: the cluster can't be asked, or does not allow it.
    """
    job = cluster.get_trainjob(name, namespace)
    if job is None:
        raise NotFound(f"there is no TrainJob {namespace}/{name}", status=404, reason="NotFound")
    if judge(job).phase.finished or bool(job["spec"].get("suspend")) == suspended:
        return False
    if queue := (job["metadata"].get("labels") or {}).get(QUEUE_LABEL):
        raise Conflict(
            f"TrainJob {namespace}/{name} is in the Kueue queue {queue}, which decides when it runs",
            hint="set spec.active of its Workload (label kueue.x-k8s.io/job-uid), or stop the queue",
        )
    cluster.suspend_trainjob(name, namespace, suspend=suspended)
    return True
