"""End of a TrainJob that its caller no longer needs.

Limits, kills, failure rules and replaced attempts end a TrainJob with [cancel][] alone. A TrainJob that has finished is
not changed, however late the watch reports its end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from trainjob.client import Cluster
from trainjob.errors import Conflict, NotFound
from trainjob.lifecycle.cluster_check import check_cluster_of_missing
from trainjob.lifecycle.identity import JobReference
from trainjob.lifecycle.suspension import needs_suspension
from trainjob.manifest import labels
from trainjob.status import Phase, Verdict, derive_verdict
from trainjob.status.failed_mark import FAILED_MARK, format_failed_mark, may_have_running_pods
from trainjob.status.nested_fields import true_conditions

# Number of tries to change a TrainJob that changes between read and write, for example while it starts.
_MAX_TRIES = 20


@dataclass(frozen=True)
class Cancellation:
    """Result of [cancel][] or `mark_failed`.

    Attributes:
        had_finished: whether the TrainJob had finished or did not exist any more, so that nothing was changed.
        verdict: verdict of the TrainJob before the action.
        text: what was done, as part of a log line, such as "it was deleted".
        job: the TrainJob as it is known after the action; None if it does not exist any more.
    """

    had_finished: bool
    verdict: Verdict
    text: str
    job: Mapping[str, Any] | None


def cancel(
    cluster: Cluster,
    reference: JobReference,
    action: str = "delete",
    *,
    known: Mapping[str, Any] | None = None,
    ignore_end: bool = False,
) -> Cancellation:
    """Delete, suspend or keep exactly this TrainJob unless it has finished; safe to repeat.

    A finished TrainJob is retained as a record, and because its model may be on its own claim. If the caller or an
    informer knows the TrainJob, the first request is the deletion. The TrainJob's resourceVersion is a precondition of
    each deletion and suspension, so it is read again if it has changed in the meantime.

    Args:
        cluster: the cluster of the TrainJob.
        reference: the TrainJob. A later one of the same name is not changed.
        action: `delete`, `suspend` (until a later submission adopts it) or `keep`, which only reads it.
        known: the TrainJob as the caller has just received it; by default as an informer has reported it.
        ignore_end: whether a TrainJob that reports an end is changed, too. The caller has found that its pods run on,
            or that the end is that of an earlier TrainJob of its name.

    Raises:
        Conflict: the TrainJob changed during each of 20 tries; it continues to run.
        WrongCluster: it does not exist here, because it belongs to another cluster.
        ClusterError: a request failed or was denied; the TrainJob continues to run.
    """
    job, deletion_sent = known or _find_known(cluster, reference), False
    for _ in range(_MAX_TRIES):
        job = job or _read(cluster, reference, may_be_deleted=deletion_sent)
        verdict = derive_verdict(job)
        if job is None and deletion_sent:  # the response to an earlier deletion was lost
            return Cancellation(False, verdict, "it was deleted", None)
        if job is None or (verdict.phase.finished and not (ignore_end or may_have_running_pods(job))):
            return Cancellation(True, verdict, _describe_end(verdict, job), job)
        if action == "keep":
            return Cancellation(False, verdict, "it continues to run", job)
        deletion_sent = action == "delete"
        if done := _delete(cluster, job) if deletion_sent else _suspend(cluster, reference, job):
            return Cancellation(False, verdict, done, None if deletion_sent else job)
        job = None
    raise Conflict(
        f"TrainJob {reference} continues to run, because it changed during each of {_MAX_TRIES} tries to {action} it",
        hint="try again",
    )


def mark_failed(
    cluster: Cluster, reference: JobReference, verdict: Verdict, action: str = "delete", *, ignore_end: bool = False
) -> Cancellation:
    """Annotate exactly this TrainJob as failed, because it counts as failed for its waiter.

    From now on each verdict of this TrainJob is the failure. If the waiter dies before it has reported the failure and
    deleted the TrainJob, the next try of the step finds the annotation and reports the failure.

    Args:
        cluster: the cluster of the TrainJob.
        reference: the TrainJob.
        verdict: the failure.
        action: what the waiter does after it has reported the failure. `suspend` also suspends the TrainJob now, which
            deletes the pods and retains the claims. With `keep`, the pods continue to run until the next try of the
            same step deletes the TrainJob, or until the runtime ends it.
        ignore_end: see [cancel][].

    Raises:
        Conflict: the TrainJob changed during each of 20 tries; it continues to run.
        ClusterError: a request failed or was denied; the TrainJob continues to run.
    """
    now = datetime.now(timezone.utc).isoformat()
    mark = format_failed_mark(verdict.reason, verdict.message, verdict.step, now, awaits_deletion=action == "delete")
    job = _find_known(cluster, reference)
    for _ in range(_MAX_TRIES):
        job = job or _read(cluster, reference)
        found = derive_verdict(job)
        has_ended = {"Complete", "Failed"} & true_conditions(job).keys()
        if job is None or found.phase is Phase.DELETED or (has_ended and not ignore_end):
            return Cancellation(True, found, _describe_end(found, job), job)
        with contextlib.suppress(NotFound, Conflict):
            suspend = True if action == "suspend" else None
            marked = _patch(cluster, job, suspend=suspend, annotations={FAILED_MARK: mark})
            return Cancellation(False, found, "it was marked as failed", marked)
        job = None
    raise Conflict(
        f"TrainJob {reference} could not be marked as failed, because it changed during each of {_MAX_TRIES} tries",
        hint="try again",
    )


def _find_known(cluster: Cluster, reference: JobReference) -> Mapping[str, Any] | None:
    return cluster.find_known_trainjob(reference.name, reference.namespace, reference.uid)


def _read(cluster: Cluster, reference: JobReference, *, may_be_deleted: bool = False) -> Mapping[str, Any] | None:
    job = cluster.get_trainjob(reference.name, reference.namespace)
    if job is not None and job["metadata"]["uid"] == reference.uid:
        return job
    check_cluster_of_missing(cluster, reference, may_be_deleted=may_be_deleted)
    return None


def _delete(cluster: Cluster, job: Mapping[str, Any]) -> str:
    """Return what was done; empty if the TrainJob has changed since it was read."""
    meta = job["metadata"]
    deleted = cluster.delete_trainjob(meta["name"], meta["namespace"], meta["uid"], meta["resourceVersion"])
    return "it was deleted" if deleted else ""


def _suspend(cluster: Cluster, reference: JobReference, job: Mapping[str, Any]) -> str:
    """Return what was done; empty if the TrainJob has changed since it was read."""
    if labels.get_adoption_time(job) != reference.adopted_at:
        return "it was not changed: another caller has adopted it"
    try:
        if not needs_suspension(job):
            return "it was not changed: it is already suspended"
    except Conflict as error:
        return f"it could not be suspended and continues to run: {error.message}"
    try:
        # A caller that adopts it after this read changes its version. One that adopts it later resumes it.
        _patch(cluster, job, suspend=True, annotations={labels.SUSPENDED: "until-adopted"})
    except (NotFound, Conflict):
        return ""
    return "it was suspended"


def _patch(cluster: Cluster, job: Mapping[str, Any], **changes: Any) -> Mapping[str, Any]:
    name, namespace, uid, version = (job["metadata"][part] for part in ("name", "namespace", "uid", "resourceVersion"))
    return cluster.patch_trainjob(name, namespace, uid, resource_version=version, **changes)


def _describe_end(verdict: Verdict, job: Mapping[str, Any] | None) -> str:
    if job is None:
        return "it did not exist any more"
    return "it was being deleted" if verdict.phase is Phase.DELETED else f"it is {verdict.phase.value} and was retained"
