"""Checks after the end of a TrainJob: restarts that no wait has seen, and work that continues or may start again.

The end of a TrainJob is not always the end of its pods (seen with Trainer 2.3 and JobSet 0.12):

* If the API server refuses once to delete the JobSet at the deadline, the TrainJob is Failed, and the JobSet runs on.
* If the JobSet of a failed TrainJob is deleted, the Trainer (2.1 to 2.3) creates it again, and the training starts
  again. A runtime with `ttlSecondsAfterFinished` does this without end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from trainjob.client import Cluster, ObjectEvent
from trainjob.errors import ClusterError
from trainjob.lifecycle.cancellation import cancel, mark_failed
from trainjob.lifecycle.identity import JobReference
from trainjob.lifecycle.wait_policy import KillAction, Limits
from trainjob.status import Category, Phase, Verdict, find_restarts
from trainjob.status.failure_rules import find_category
from trainjob.status.nested_fields import get_mapping, get_str, true_conditions
from trainjob.status.pods import is_active, rank_of, step_of

ACTIVE_PODS_SECONDS = 30.0
"""How long pods may run after the end of their TrainJob. Their deletion begins within a second of it (Trainer 2.3)."""
_MAX_PODS = 4  # a warning names at most this many pods
Pod = Mapping[str, Any]


def describe_restarts(pods: Iterable[Pod], limit: int | None) -> list[str]:
    """Return warnings about containers that succeeded after too many restarts in place.

    A wait that sees such a failure ends the TrainJob. A wait that begins later, or loses its watch, does not see it.

    Args:
        pods: pods of a complete TrainJob.
        limit: `max_restarts` of the wait; None means no limit.
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


def needs_jobset_at_end(job: Mapping[str, Any], verdict: Verdict) -> bool:
    """Return whether the JobSet shows if a failed TrainJob may start again.

    At its deadline, the JobSet is deleted, and the failure is final (Trainer 2.2 and later).
    """
    is_failed = verdict.phase is Phase.FAILED and Phase.FAILED.value in true_conditions(job)
    return is_failed and find_category(verdict.reason) is not Category.DEADLINE


class EndCheck:
    """Check that nothing of one finished TrainJob runs or may start again (blocking I/O).

    No error of the API server ends the check; it becomes part of a warning.
    """

    def __init__(
        self, cluster: Cluster, reference: JobReference, limits: Limits, belongs_to_job: Callable[[ObjectEvent], bool]
    ) -> None:
        """Create a check.

        Args:
            cluster: the cluster of the TrainJob.
            reference: the TrainJob.
            limits: limits of the wait. With the action `keep` on failure, the check changes nothing.
            belongs_to_job: returns whether a pod of this name belongs to this TrainJob.
        """
        self._cluster, self._reference, self._limits = cluster, reference, limits
        self._belongs_to_job = belongs_to_job

    def run(self, verdict: Verdict, pods: Sequence[Pod], jobset: Mapping[str, Any] | None) -> list[str]:
        """Return a warning for everything that was found, with what was done about it.

        No request is sent if `pods` contains no active pod and the JobSet has no TTL.

        Args:
            verdict: verdict of the TrainJob, from its own conditions.
            pods: pods of the TrainJob, listed after its end.
            jobset: JobSet of a failed TrainJob; None if it is not known; see [needs_jobset_at_end][].
        """
        ttl = get_mapping(jobset, "spec").get("ttlSecondsAfterFinished")
        warnings = [] if ttl is None else [self._prevent_restart(verdict, ttl)]
        if any(map(is_active, pods)) and (active := self._wait_for_pods()):
            warnings.append(self._end_pods(verdict, active))
        return warnings

    def _prevent_restart(self, verdict: Verdict, ttl: object) -> str:
        cause = (
            f"the runtime sets ttlSecondsAfterFinished ({ttl}). When this time deletes the JobSet, Trainer 2.1 to 2.3 "
            "starts the failed TrainJob again"
        )
        if self._limits.on_failure is KillAction.KEEP:
            return f"{cause}. Delete the TrainJob, or remove the field from the runtime"
        try:
            mark_failed(self._cluster, self._reference, verdict, KillAction.SUSPEND.value, ignore_end=True)
        except ClusterError as error:
            return f"{cause}. It could not be suspended: {error.message}"
        return f"{cause}, so it was suspended and marked as failed. Remove the field from the runtime"

    def _end_pods(self, verdict: Verdict, active: Sequence[Pod]) -> str:
        names = ", ".join(sorted(f"{step_of(pod)}-{rank_of(pod)}" for pod in active)[:_MAX_PODS])
        found = (
            f"{len(active)} pod{'s' * (len(active) > 1)} ({names}) still ran {ACTIVE_PODS_SECONDS:.0f} s after the end"
        )
        # A complete TrainJob is never deleted, because its model may be on its own claim. Suspending a TrainJob after
        # its deadline does not end its pods (Trainer 2.3).
        if verdict.phase is not Phase.FAILED or self._limits.on_failure is not KillAction.DELETE:
            where = f"{self._reference.name} -n {self._reference.namespace}"
            return f"{found}. To end them, delete the TrainJob: kubectl delete trainjob {where}"
        try:
            cancel(self._cluster, self._reference, ignore_end=True)
        except ClusterError as error:
            return f"{found}, and the TrainJob could not be deleted: {error.message}"
        return f"{found}, so the TrainJob was deleted"

    def _wait_for_pods(self) -> list[Pod]:
        """Return the pods that are still active after [ACTIVE_PODS_SECONDS][].

        The informer delivers each later change of the pods, so nothing is polled. The last list confirms what the
        informer says, because its watch may lag behind.
        """
        active, ended = set[str](), set[str]()
        changed = threading.Condition()

        def update(event: ObjectEvent) -> None:
            if event.object is None or not self._belongs_to_job(event):
                return
            with changed:
                uid = {get_str(event.object, "metadata", "uid")}
                if event.deleted or not is_active(event.object):
                    ended.update(uid)
                    active.difference_update(uid)
                else:
                    active.update(uid)
                changed.notify_all()

        with self._cluster.pod_informer(self._reference.namespace).add_event_handler(self._reference.name, update):
            listed = {get_str(pod, "metadata", "uid") for pod in self._list_active_pods()}
            with changed:
                active |= listed - ended
                if not listed or changed.wait_for(lambda: not active, ACTIVE_PODS_SECONDS):
                    return []
        return self._list_active_pods()

    def _list_active_pods(self) -> list[Pod]:
        try:
            pods = self._cluster.list_pods(self._reference.name, self._reference.namespace)
        except ClusterError:
            return []  # without the API server nothing can be ended either
        return [pod for pod in pods if is_active(pod) and self._belongs_to_job(ObjectEvent(pod))]
