"""Suspension and resumption of a TrainJob."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainjob.client import Cluster
from trainjob.errors import Conflict, NotFound
from trainjob.lifecycle.cluster_check import check_cluster_of_missing
from trainjob.lifecycle.identity import JobReference
from trainjob.manifest import labels
from trainjob.status import derive_verdict
from trainjob.status.nested_fields import get_mapping, get_str
from trainjob.status.verdict import QUEUE_LABEL

_STOCK_TORCHTUNE_PREFIX, _CLUSTER_RUNTIME_KIND = "torchtune-", "ClusterTrainingRuntime"


def set_suspended(cluster: Cluster, name: str, namespace: str, *, suspended: bool) -> bool:
    """Suspend or resume a TrainJob; safe to repeat.

    A suspended TrainJob loses its pods and retains its claims and finished initializers. After it is resumed, the
    training starts from the beginning (Trainer 2.3). It stays suspended until it is resumed.

    Returns:
        True if the TrainJob was changed. False if it has finished, or is already suspended or resumed as requested.

    Raises:
        NotFound: the TrainJob does not exist.
        Conflict: the TrainJob is in a Kueue queue, and Kueue reverts the change within 0.2 s (Kueue 0.17). Or it uses a
            stock TorchTune runtime, whose JobSet cannot be changed. Or another TrainJob of its name has replaced it
            since it was read.
        ClusterError: a request failed or was denied.
    """
    job = cluster.get_trainjob(name, namespace)
    if job is None:
        raise NotFound(f"there is no TrainJob {namespace}/{name}", status=404, reason="NotFound")
    if not _needs_change(job, suspended=suspended):
        return False
    annotations = {labels.SUSPENDED: None}  # the user has decided, so an adoption must not resume it
    cluster.patch_trainjob(name, namespace, job["metadata"]["uid"], suspend=suspended, annotations=annotations)
    return True


def suspend_until_adopted(cluster: Cluster, reference: JobReference) -> bool:
    """Suspend exactly this TrainJob until a later submission adopts and resumes it.

    Returns:
        True if the TrainJob was suspended. False if it has finished, is already suspended, or was adopted by another
        caller since `reference` was created.

    Raises:
        NotFound: the TrainJob does not exist any more.
        Conflict: the TrainJob is in a Kueue queue, uses a stock TorchTune runtime, or changed during each of 5 tries.
        ClusterError: a request failed or was denied.
    """
    tries = 5
    while True:
        job = cluster.get_trainjob(reference.name, reference.namespace)
        if job is None or job["metadata"]["uid"] != reference.uid:
            check_cluster_of_missing(cluster, reference)
            raise NotFound(
                f"there is no TrainJob {reference} with the uid {reference.uid}", status=404, reason="NotFound"
            )
        if labels.get_adoption_time(job) != reference.adopted_at or not _needs_change(job, suspended=True):
            return False
        meta, annotations = job["metadata"], {labels.SUSPENDED: "until-adopted"}
        try:
            cluster.patch_trainjob(
                meta["name"],
                meta["namespace"],
                meta["uid"],
                # A caller that adopts it after this read changes its version. One that adopts it later resumes it.
                resource_version=meta["resourceVersion"],
                suspend=True,
                annotations=annotations,
            )
        except Conflict:
            tries -= 1
            if not tries:
                raise
        else:
            return True


def _needs_change(job: Mapping[str, Any], *, suspended: bool) -> bool:
    if derive_verdict(job).phase.finished or bool(get_mapping(job, "spec").get("suspend")) == suspended:
        return False
    meta = job["metadata"]
    job_name = f"{meta['namespace']}/{meta['name']}"
    if queue := (meta.get("labels") or {}).get(QUEUE_LABEL):
        raise Conflict(
            f"TrainJob {job_name} is in the Kueue queue {queue}, and Kueue decides when it runs",
            hint='change "spec.active" of its Workload (label "kueue.x-k8s.io/job-uid"), or stop the queue',
        )
    runtime, kind = get_str(job, "spec", "runtimeRef", "name"), get_str(job, "spec", "runtimeRef", "kind")
    if runtime.startswith(_STOCK_TORCHTUNE_PREFIX) and kind in ("", _CLUSTER_RUNTIME_KIND):
        raise Conflict(
            f"TrainJob {job_name} uses the stock runtime {runtime}. Its JobSet can't be changed after "
            "its creation, so suspending or resuming it would not affect its pods (Trainer 2.3, JobSet 0.12)",
            hint="cancel it; a TrainJob with a workspace on another runtime can be suspended",
        )
    return True
