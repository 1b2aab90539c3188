"""Adoption of a TrainJob that exists already."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from trainjob.client import Cluster
from trainjob.errors import Conflict, NotFound
from trainjob.lifecycle.identity import JobReference
from trainjob.manifest import labels
from trainjob.status import Outcome, Phase


def adopt(
    cluster: Cluster, adopted: Mapping[str, Any], ours: Mapping[str, Any], ending: Mapping[str, str]
) -> Mapping[str, Any] | None:
    """Mark a TrainJob as this caller's, and resume it if it was suspended until somebody adopts it.

    A sweep (`trainjob.retention.sweep`) deletes only a TrainJob that has not changed since it was read. Either this
    patch comes first and the TrainJob stays, or the TrainJob is gone and this function returns None. A known TrainJob
    without the run key gets it, because waiters watch by label and others look up jobs by run key.

    Args:
        cluster: where.
        adopted: it, as it was read.
        ours: the metadata that a new one would have.
        ending: the annotations for its end.

    Returns:
        It, as it is then; None when it goes, has been suspended since it was read, or has pods that still end: their
        successors would write to the same workspace.

    Raises:
        ClusterError: the cluster can't be asked, or does not allow it.
    """
    meta, unset = adopted["metadata"], (labels.TTL_AFTER_SUCCESS, labels.TTL_AFTER_FAILURE, labels.ON_KILL)
    suspended = labels.annotation(adopted, labels.SUSPENDED)
    if suspended and not all(map(_has_ended, cluster.list_pods(meta["name"], meta["namespace"]))):
        return None
    annotations: dict[str, str | None] = {
        labels.RUN_KEY: ours["annotations"][labels.RUN_KEY],
        labels.ADOPTED: datetime.now(timezone.utc).isoformat(),
        **dict.fromkeys(unset),
        **ending,
        **({labels.SUSPENDED: None} if suspended else {}),
    }
    try:
        taken = cluster.patch_trainjob(
            meta["name"],
            meta["namespace"],
            meta["uid"],
            suspend=False if suspended else None,
            labels=ours["labels"],
            annotations=annotations,
        )
    except (NotFound, Conflict):
        return None
    goes = taken["metadata"].get("deletionTimestamp") or labels.annotation(taken, labels.SUSPENDED)
    return None if goes else taken


def reattempt_notice(reference: JobReference, outcome: Outcome) -> str:
    """Return a line for the log if the caller must submit again, because its adopted TrainJob was deleted; else "".

    An earlier try deletes its TrainJob late: a launcher whose node was lost and came back, or a deferred task that is
    cleared. A TrainJob that this caller created itself was deleted by somebody else, and the step has failed.
    """
    if outcome.phase is Phase.DELETED and reference.adopted:
        return f"TrainJob {reference} was deleted after it was adopted; starting another attempt"
    return ""


def _has_ended(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
