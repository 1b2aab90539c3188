"""Ending a TrainJob that nobody wants any more."""

from __future__ import annotations

import contextlib
from datetime import datetime, timezone

from trainjob.client import Cluster
from trainjob.errors import Conflict, NotFound
from trainjob.lifecycle.identity import JobReference
from trainjob.lifecycle.suspension import suspend_until_adopted
from trainjob.status import Phase, Verdict, judge
from trainjob.status.left import FAILED_MARK, failed_mark

_LOOKS = 20  # at one that changes each time that it is about to go, as one that starts does


def cancel(cluster: Cluster, reference: JobReference) -> bool:
    """Delete exactly this TrainJob, with its pods; safe to repeat, and safe when its name is in use again.

    Returns:
        False when it was gone already.

    Raises:
        ClusterError: the cluster can't be asked, or does not allow it; the job goes on.
    """
    return cluster.delete_trainjob(reference.name, reference.namespace, reference.uid)


def cancel_at_work(cluster: Cluster, reference: JobReference) -> Verdict:
    """Delete exactly this TrainJob unless it has ended: then it is a record, and its model may be on its own claim.

    Returns:
        How it stood: a finished phase when it was left as it is, or was gone.

    Raises:
        Conflict: it changes too often.
        ClusterError: the cluster can't be asked, or does not allow it; the job goes on.
    """
    for _ in range(_LOOKS):
        job = cluster.get_trainjob(reference.name, reference.namespace)
        if job is None or job["metadata"]["uid"] != reference.uid:
            return judge(None)
        verdict, version = judge(job), job["metadata"]["resourceVersion"]
        if verdict.phase.finished:
            return verdict
        if cluster.delete_trainjob(reference.name, reference.namespace, reference.uid, version):
            return verdict
    raise Conflict(f"TrainJob {reference} changes all the time and was not deleted", hint="try again")


def give_up(cluster: Cluster, reference: JobReference, on_kill: str = "delete") -> str:
    """Stop wanting exactly this TrainJob: delete it, suspend it until somebody asks for it again, or leave it alone.

    Args:
        cluster: where.
        reference: which.
        on_kill: `delete`, `suspend` or `keep`.

    Returns:
        What became of it, as words.

    Raises:
        ClusterError: the cluster can't be asked, or does not allow it; the job goes on.
    """
    if on_kill == "delete":
        return "it was deleted" if cancel(cluster, reference) else "it was gone already"
    if on_kill == "keep":
        return "it goes on"
    try:
        changed = suspend_until_adopted(cluster, reference)
    except NotFound:
        return "it was gone already"
    except Conflict as error:
        return f"it could not be suspended and goes on: {error.message}"
    return "it was suspended" if changed else "it was left as it is: it has ended, is suspended, or is somebody else's"


def give_up_unless_ended(cluster: Cluster, reference: JobReference, on_kill: str) -> str:
    """Apply a kill action to exactly this TrainJob; one that has ended is a record and stays.

    Args:
        cluster: where.
        reference: which.
        on_kill: `delete`, `suspend` or `keep`.

    Returns:
        What happened to it, in words.

    Raises:
        ClusterError: the cluster cannot be reached or refuses; the TrainJob runs on.
    """
    if on_kill != "delete":
        return give_up(cluster, reference, on_kill)
    phase = cancel_at_work(cluster, reference).phase
    if phase is Phase.DELETED:
        return "it was gone already"
    return f"it is {phase.value} and stays" if phase.finished else "it was deleted"


def end_as_failed(cluster: Cluster, reference: JobReference, verdict: Verdict, on_failure: str = "delete") -> None:
    """End exactly this TrainJob, as it has failed for us; one that is gone is no error.

    Args:
        cluster: where.
        reference: which.
        verdict: why.
        on_failure: `delete`; `suspend`: its pods go, it stays with its claims; `keep`: its pods stay, too, and go on
            until the next try of the same step deletes it, or its runtime gives up.

    Raises:
        ClusterError: the cluster can't be asked, or does not allow it; the job goes on.
    """
    if on_failure == "delete":
        cancel(cluster, reference)
        return
    mark = failed_mark(verdict.reason, verdict.message, verdict.step, datetime.now(timezone.utc).isoformat())
    with contextlib.suppress(NotFound, Conflict):
        cluster.patch_trainjob(
            reference.name,
            reference.namespace,
            reference.uid,
            suspend=True if on_failure == "suspend" else None,
            annotations={FAILED_MARK: mark},
        )
