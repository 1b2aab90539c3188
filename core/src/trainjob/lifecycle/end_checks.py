"""Checks after the end of a TrainJob: restarts that no wait has seen, and work that continues or may start again.

The end of a TrainJob is not always the end of its pods (seen with Trainer 2.3 and JobSet 0.12):

* If the API server refuses once to delete the JobSet at the deadline, the TrainJob is Failed, and the JobSet runs on.
* If the JobSet of a failed TrainJob is deleted, the Trainer (2.1 to 2.3) creates it again, and the training starts
  again. A runtime with `ttlSecondsAfterFinished` does this without end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainjob.client import Cluster
from trainjob.errors import ClusterError
from trainjob.lifecycle.cancellation import cancel, mark_failed
from trainjob.lifecycle.identity import JobReference
from trainjob.lifecycle.wait_policy import KillAction, Limits
from trainjob.status import Phase, Verdict, find_restarts
from trainjob.status.nested_fields import get_mapping, true_conditions
from trainjob.status.pods import belongs_to_job, is_active, rank_of, step_of

ACTIVE_PODS_SECONDS = 30.0
"""How long pods may run after the end of their TrainJob. Their deletion begins within a second of it (Trainer 2.3)."""
_MAX_PODS = 4  # a warning names at most this many pods
Pod = Mapping[str, Any]


def check_after_end(
    cluster: Cluster,
    reference: JobReference,
    limits: Limits,
    job: Mapping[str, Any],
    verdict: Verdict,
    pods: Sequence[Pod],
    jobset: Mapping[str, Any] | None,
) -> list[str]:
    """Check that nothing of a finished TrainJob runs or may start again (blocking I/O).

    No request is sent if no pod is active and the JobSet has no TTL. With the action `keep` on failure, nothing is
    changed. A TrainJob that was deleted or ended by this project is not checked.

    Returns:
        A warning for everything that was found, with what was done about it, or the error that prevented that.
    """
    if not true_conditions(job).keys() & {Phase.COMPLETE.value, Phase.FAILED.value}:
        return []
    warnings = _describe_restarts(pods, limits.max_restarts) if verdict.phase is Phase.COMPLETE else []
    ttl = get_mapping(jobset, "spec").get("ttlSecondsAfterFinished")
    if ttl is not None:
        warnings.append(_prevent_restart(cluster, reference, limits, verdict, ttl))
    if any(map(is_active, pods)) and (active := _wait_for_pods(cluster, reference, job)):
        warnings.append(_end_pods(cluster, reference, limits, verdict, active))
    return warnings


def _describe_restarts(pods: Iterable[Pod], limit: int | None) -> list[str]:
    """Return warnings about containers that succeeded after too many restarts in place.

    A wait that sees such a failure ends the TrainJob. A wait that begins later, or loses its watch, does not see it.
    """
    if limit is None:
        return []
    return [
        f"container {each.container} of pod {each.pod} succeeded after {each.count} restart{'s' * (each.count > 1)} in "
        f"place (last failure: {each.reason}, exit code {each.exit_code}). max_restarts is {limit}, but no wait saw "
        "the failures in time, so the TrainJob counts as complete"
        for each in find_restarts(pods)
        if each.count > limit
    ]


def _prevent_restart(cluster: Cluster, reference: JobReference, limits: Limits, verdict: Verdict, ttl: object) -> str:
    cause = (
        f"the runtime sets ttlSecondsAfterFinished ({ttl}). When this time deletes the JobSet, Trainer 2.1 to 2.3 "
        "starts the failed TrainJob again"
    )
    if limits.on_failure is KillAction.KEEP:
        return f"{cause}. Delete the TrainJob, or remove the field from the runtime"
    try:
        mark_failed(cluster, reference, verdict, KillAction.SUSPEND.value, ignore_end=True)
    except ClusterError as error:
        return f"{cause}. It could not be suspended: {error.message}"
    return f"{cause}, so it was suspended and marked as failed. Remove the field from the runtime"


def _end_pods(
    cluster: Cluster, reference: JobReference, limits: Limits, verdict: Verdict, active: Sequence[Pod]
) -> str:
    names = ", ".join(sorted(f"{step_of(pod)}-{rank_of(pod)}" for pod in active)[:_MAX_PODS])
    found = f"{len(active)} pod{'s' * (len(active) > 1)} ({names}) still ran {ACTIVE_PODS_SECONDS:.0f} s after the end"
    # A complete TrainJob is never deleted, because its model may be on its own claim. Suspending a TrainJob after its
    # deadline does not end its pods (Trainer 2.3).
    if verdict.phase is not Phase.FAILED or limits.on_failure is not KillAction.DELETE:
        where = f"{reference.name} -n {reference.namespace}"
        return f"{found}. To end them, delete the TrainJob: kubectl delete trainjob {where}"
    try:
        cancel(cluster, reference, ignore_end=True)
    except ClusterError as error:
        return f"{found}, and the TrainJob could not be deleted: {error.message}"
    return f"{found}, so the TrainJob was deleted"


def _wait_for_pods(cluster: Cluster, reference: JobReference, job: Mapping[str, Any]) -> list[Pod]:
    """Return the pods that are still active after [ACTIVE_PODS_SECONDS][].

    They are listed again after each change that the informer reports, because its watch may lag behind.
    """
    changed, deadline = threading.Event(), time.monotonic() + ACTIVE_PODS_SECONDS
    with cluster.pod_informer(reference.namespace).add_event_handler(reference.name, lambda _: changed.set()):
        while (active := _list_active_pods(cluster, reference, job)) and (seconds := deadline - time.monotonic()) > 0:
            changed.wait(seconds)
            changed.clear()
    return active


def _list_active_pods(cluster: Cluster, reference: JobReference, job: Mapping[str, Any]) -> list[Pod]:
    try:
        pods = cluster.list_pods(reference.name, reference.namespace)
    except ClusterError:
        return []  # without the API server nothing can be ended either
    return [pod for pod in pods if is_active(pod) and belongs_to_job(pod, job)]
