"""Deletion or suspension of a TrainJob that its caller no longer needs."""

from __future__ import annotations

import contextlib
from datetime import datetime, timezone

from trainjob.client import Cluster
from trainjob.errors import Conflict, NotFound
from trainjob.lifecycle.cluster_check import check_cluster_of_missing
from trainjob.lifecycle.identity import JobReference
from trainjob.lifecycle.suspension import suspend_until_adopted
from trainjob.status import Phase, Verdict, derive_verdict
from trainjob.status.failed_mark import FAILED_MARK, format_failed_mark

# Number of tries to delete a TrainJob that changes between read and delete, for example while it starts.
_MAX_TRIES = 20


def cancel(cluster: Cluster, reference: JobReference) -> bool:
    """Delete exactly this TrainJob and its pods; safe to repeat.

    A later TrainJob of the same name is not deleted.

    Returns:
        True if it was deleted now; False if it did not exist any more.

    Raises:
        WrongCluster: it does not exist here, because it belongs to another cluster.
        ClusterError: the request failed or was denied; the TrainJob continues to run.
    """
    deleted = cluster.delete_trainjob(reference.name, reference.namespace, reference.uid)
    if not deleted:  # or an earlier request of this call has deleted it, and its response was lost
        check_cluster_of_missing(cluster, reference, may_be_deleted=True)
    return deleted


def cancel_unless_finished(cluster: Cluster, reference: JobReference) -> Verdict:
    """Delete exactly this TrainJob unless it has finished.

    A finished TrainJob is retained as a record, and because its model may be on its own claim.

    Returns:
        The verdict before the deletion. A finished phase means that nothing was deleted now; `DELETED` means that it
        did not exist any more or was being deleted.

    Raises:
        Conflict: the TrainJob changed during each of 20 tries and was not deleted.
        WrongCluster: it does not exist here, because it belongs to another cluster.
        ClusterError: a request failed or was denied; the TrainJob continues to run.
    """
    for _ in range(_MAX_TRIES):
        job = cluster.get_trainjob(reference.name, reference.namespace)
        if job is None or job["metadata"]["uid"] != reference.uid:
            check_cluster_of_missing(cluster, reference)
            return derive_verdict(None)
        verdict, version = derive_verdict(job), job["metadata"]["resourceVersion"]
        if verdict.phase.finished:
            return verdict
        if cluster.delete_trainjob(reference.name, reference.namespace, reference.uid, version):
            return verdict
    raise Conflict(
        f"TrainJob {reference} was not deleted, because it changed during each of {_MAX_TRIES} tries", hint="try again"
    )


def apply_kill_action(cluster: Cluster, reference: JobReference, on_kill: str = "delete") -> str:
    """Apply a kill action to exactly this TrainJob: delete, suspend or retain it.

    Args:
        cluster: the cluster of the TrainJob.
        reference: the TrainJob.
        on_kill: `delete`, `suspend` (until a later submission adopts it) or `keep`.

    Returns:
        The result as part of a log line, such as "it was deleted".

    Raises:
        ClusterError: a request failed or was denied; the TrainJob continues to run.
    """
    if on_kill == "delete":
        return "it was deleted" if cancel(cluster, reference) else "it did not exist any more"
    if on_kill == "keep":
        return "it continues to run"
    try:
        changed = suspend_until_adopted(cluster, reference)
    except NotFound:
        return "it did not exist any more"
    except Conflict as error:
        return f"it could not be suspended and continues to run: {error.message}"
    if changed:
        return "it was suspended"
    return "it was not changed: it has finished, is already suspended, or another caller has adopted it"


def apply_kill_action_unless_finished(cluster: Cluster, reference: JobReference, on_kill: str) -> str:
    """Apply a kill action to exactly this TrainJob; a finished one is retained as a record.

    Args:
        cluster: the cluster of the TrainJob.
        reference: the TrainJob.
        on_kill: `delete`, `suspend` (until a later submission adopts it) or `keep`.

    Returns:
        The result as part of a log line, such as "it was deleted".

    Raises:
        Conflict: the TrainJob changed during each of 20 tries and was not deleted.
        ClusterError: a request failed or was denied; the TrainJob continues to run.
    """
    if on_kill != "delete":
        return apply_kill_action(cluster, reference, on_kill)
    phase = cancel_unless_finished(cluster, reference).phase
    if phase is Phase.DELETED:
        return "it did not exist any more"
    return f"it is {phase.value} and was retained" if phase.finished else "it was deleted"


def end_as_failed(cluster: Cluster, reference: JobReference, verdict: Verdict, on_failure: str = "delete") -> None:
    """End exactly this TrainJob because it counts as failed for its waiter.

    A TrainJob that does not exist any more is not an error.

    Args:
        cluster: the cluster of the TrainJob.
        reference: the TrainJob.
        verdict: the failure; a suspended or kept TrainJob gets it as an annotation.
        on_failure: `delete`, `suspend` or `keep`. `suspend` deletes the pods and retains the TrainJob and its claims.
            `keep` also retains the pods. They continue to run until the next try of the same step deletes the TrainJob,
            or until the runtime ends it.

    Raises:
        ClusterError: a request failed or was denied; the TrainJob continues to run.
    """
    if on_failure == "delete":
        cancel(cluster, reference)
        return
    mark = format_failed_mark(verdict.reason, verdict.message, verdict.step, datetime.now(timezone.utc).isoformat())
    with contextlib.suppress(NotFound, Conflict):
        cluster.patch_trainjob(
            reference.name,
            reference.namespace,
            reference.uid,
            suspend=True if on_failure == "suspend" else None,
            annotations={FAILED_MARK: mark},
        )
