"""End of a TrainJob by its waiter: after a failure that the wait has decided, and at a limit.

If the TrainJob has ended by itself before that, nothing is changed, and its own end counts. The watch may report it
late.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

from trainjob.client import Cluster
from trainjob.errors import ClusterError, WaitTimeout
from trainjob.lifecycle.cancellation import Cancellation, cancel, mark_failed
from trainjob.lifecycle.identity import JobReference
from trainjob.lifecycle.wait_policy import KillAction, Limits, WaitResult
from trainjob.manifest import labels
from trainjob.status import Evidence, Phase, Verdict
from trainjob.status.failed_mark import awaits_deletion
from trainjob.status.failure_rules import NO_RESERVATION


def choose_action(
    job: Mapping[str, Any], result: WaitResult, limits: Limits, *, is_false_end: bool
) -> KillAction | None:
    """Return the action on a TrainJob that may still run after the wait; None if it has ended.

    A false end is that of another TrainJob; see [trainjob.status.verdict.check_end][].
    """
    if result.end_job and result.verdict.reason == NO_RESERVATION:
        return KillAction.DELETE  # the queue must not admit it later, beside the next attempt
    if awaits_deletion(job):  # an earlier waiter died before it had reported this failure
        return KillAction.DELETE
    return limits.on_failure if result.end_job or (is_false_end and limits.on_failure is not KillAction.KEEP) else None


def end_as_failed(
    cluster: Cluster,
    reference: JobReference,
    job: Mapping[str, Any],
    verdict: Verdict,
    action: KillAction,
    collect: Callable[[], Evidence],
    *,
    is_false_end: bool,
) -> Evidence | Cancellation:
    """End a failed TrainJob, and return the evidence, or its own end (blocking I/O).

    Nothing is changed if the TrainJob has ended by itself before. The annotation of the failure is written before the
    deletion, so that the next try of the step reports it if this process dies between the two. The evidence is
    collected before a suspension, which deletes the pods.

    Raises:
        ClusterError: a request failed or was denied; the TrainJob continues to run.
    """
    if action is not KillAction.DELETE:
        evidence = collect()
        end = mark_failed(cluster, reference, verdict, action.value, ignore_end=is_false_end)
        return end if end.had_finished else evidence
    if not is_false_end:
        marked = mark_failed(cluster, reference, verdict)
        if marked.had_finished:
            return marked
        job = marked.job or job
    evidence = collect()
    end = cancel(cluster, reference, known=job, ignore_end=is_false_end)
    return end if end.had_finished and end.verdict.phase is not Phase.DELETED else evidence


def end_at_limit(cluster: Cluster, reference: JobReference, limits: Limits, result: WaitResult) -> Cancellation:
    """Apply `limits.on_timeout`, or return the TrainJob's own end (blocking I/O).

    Raises:
        WaitTimeout: the TrainJob had not finished.
        ClusterError: a request failed or was denied; the TrainJob continues to run.
    """
    end = cancel(cluster, reference, limits.on_timeout.value)
    if end.had_finished:
        return end
    if limits.on_timeout is not KillAction.DELETE:
        _record_reached_limit(cluster, reference)
    message = f"TrainJob {reference} is {result.verdict}: {result.timeout}; {end.text}"
    raise WaitTimeout(message, hint=result.advice)


def _record_reached_limit(cluster: Cluster, reference: JobReference) -> None:
    """Record the time of a timeout, so that the next try waits as long as this one."""
    now = datetime.fromtimestamp(cluster.get_server_time(), timezone.utc)
    mark = {labels.LIMIT_REACHED: now.isoformat()}
    with contextlib.suppress(ClusterError):
        cluster.patch_trainjob(reference.name, reference.namespace, reference.uid, annotations=mark)
