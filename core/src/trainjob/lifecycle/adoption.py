"""Adoption of an existing TrainJob."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from trainjob.client import Cluster
from trainjob.errors import Conflict, NotFound
from trainjob.manifest import labels


def adopt(
    cluster: Cluster, job: Mapping[str, Any], new_metadata: Mapping[str, Any], given_annotations: Mapping[str, str]
) -> Mapping[str, Any] | None:
    """Mark a TrainJob as adopted by this caller, and resume it if it waits for adoption.

    A suspended TrainJob waits for adoption if it has the annotation `trainjob.dev/suspended`. A sweep
    (`trainjob.retention.sweep`) deletes only a TrainJob that has not changed since it was read. Either this patch comes
    first and the TrainJob is retained, or the TrainJob was deleted and this function returns None. A known TrainJob
    without the run key gets it, because waiters watch by label and other callers look up TrainJobs by run key.

    Args:
        cluster: the cluster of the TrainJob.
        job: the TrainJob as it was read.
        new_metadata: the metadata of a new TrainJob; its labels, run key and spec hash are written to the adopted one.
        given_annotations: the request's annotations, and those for retention and for the kill action.

    Returns:
        The TrainJob after the patch. None if it does not exist any more, is being deleted, or was suspended since it
        was read. None also if it is suspended and its pods are still terminating: after resumption, new pods would
        write to the same workspace.

    Raises:
        ClusterError: a request failed or was denied.
    """
    meta, unset = job["metadata"], (labels.TTL_AFTER_SUCCESS, labels.TTL_AFTER_FAILURE, labels.ON_KILL)
    suspended = labels.get_annotation(job, labels.SUSPENDED)
    if suspended and not all(map(_is_finished, cluster.list_pods(meta["name"], meta["namespace"]))):
        return None
    annotations: dict[str, str | None] = {
        **{name: new_metadata["annotations"][name] for name in (labels.RUN_KEY, labels.SPEC_HASH)},
        labels.ADOPTED: datetime.now(timezone.utc).isoformat(),
        **dict.fromkeys(unset),
        **given_annotations,
        **({labels.SUSPENDED: None} if suspended else {}),
    }
    try:
        patched = cluster.patch_trainjob(
            meta["name"],
            meta["namespace"],
            meta["uid"],
            suspend=False if suspended else None,
            labels=new_metadata["labels"],
            annotations=annotations,
        )
    except (NotFound, Conflict):
        return None
    is_unusable = patched["metadata"].get("deletionTimestamp") or labels.get_annotation(patched, labels.SUSPENDED)
    return None if is_unusable else patched


def _is_finished(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
