"""Pausing a TrainJob and letting it go on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainjob.client import Cluster
from trainjob.errors import Conflict, NotFound
from trainjob.lifecycle.identity import JobReference
from trainjob.manifest import labels
from trainjob.status import judge
from trainjob.status.verdict import QUEUE_LABEL

_STOCK_TORCHTUNE, _CLUSTER_WIDE = "torchtune-", "ClusterTrainingRuntime"


def set_suspended(cluster: Cluster, name: str, namespace: str, *, suspended: bool) -> bool:
    """Suspend a TrainJob, or resume it; safe to repeat.

    A suspended TrainJob loses its pods and keeps its claims and finished initializers; the training starts from the
    beginning when it goes on (Trainer 2.3). It stays suspended until it is resumed.

    Returns:
        False when there was nothing to do: it has ended, or is that way already.

    Raises:
        NotFound: there is no such TrainJob.
        Conflict: it belongs to a Kueue queue, which undoes the flag within 0.2 s (Kueue 0.17); or it is on a stock
            TorchTune runtime, whose JobSet can't be changed; or its name has belonged to another one since it was read.
        ClusterError: the cluster can't be asked, or does not allow it.
    """
    job = cluster.get_trainjob(name, namespace)
    if job is None:
        raise NotFound(f"there is no TrainJob {namespace}/{name}", status=404, reason="NotFound")
    if not _can_be_set(job, suspended=suspended):
        return False
    marks = {labels.SUSPENDED: None}  # from now on it is a person's wish
    cluster.patch_trainjob(name, namespace, job["metadata"]["uid"], suspend=suspended, annotations=marks)
    return True


def suspend_until_adopted(cluster: Cluster, reference: JobReference) -> bool:
    """Suspend exactly this TrainJob until somebody asks for the same again, who then takes it over and resumes it.

    Returns:
        False when there was nothing to do: it has ended, is suspended, or somebody else has taken it over meanwhile.

    Raises:
        NotFound: it is gone.
        Conflict: it belongs to a Kueue queue, is on a stock TorchTune runtime, or changes too often.
        ClusterError: the cluster can't be asked, or does not allow it.
    """
    tries = 5
    while True:
        job = cluster.get_trainjob(reference.name, reference.namespace)
        if job is None or job["metadata"]["uid"] != reference.uid:
            raise NotFound(f"there is no TrainJob {reference} of that uid", status=404, reason="NotFound")
        if labels.adopted_at(job) != reference.adopted_at or not _can_be_set(job, suspended=True):
            return False
        meta, marks = job["metadata"], {labels.SUSPENDED: "until-adopted"}
        try:
            cluster.patch_trainjob(
                meta["name"],
                meta["namespace"],
                meta["uid"],
                version=meta["resourceVersion"],  # who takes it over from now on finds it suspended, and resumes it
                suspend=True,
                annotations=marks,
            )
        except Conflict:
            tries -= 1
            if not tries:
                raise
        else:
            return True


def _can_be_set(job: Mapping[str, Any], *, suspended: bool) -> bool:
    if judge(job).phase.finished or bool(job["spec"].get("suspend")) == suspended:
        return False
    meta = job["metadata"]
    if queue := (meta.get("labels") or {}).get(QUEUE_LABEL):
        raise Conflict(
            f"TrainJob {meta['namespace']}/{meta['name']} is in the Kueue queue {queue}, which decides when it runs",
            hint="set spec.active of its Workload (label kueue.x-k8s.io/job-uid), or stop the queue",
        )
    runtime = job["spec"]["runtimeRef"]
    if runtime["name"].startswith(_STOCK_TORCHTUNE) and runtime.get("kind", _CLUSTER_WIDE) == _CLUSTER_WIDE:
        raise Conflict(
            f"TrainJob {meta['namespace']}/{meta['name']} is on the stock runtime {runtime['name']}, whose JobSet "
            "can't be changed once it exists: suspend and resume would not reach its pods (Trainer 2.3, JobSet 0.12)",
            hint="cancel it, or train over a workspace",
        )
    return True
