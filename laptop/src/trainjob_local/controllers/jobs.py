"""The Job controller; the function that decides is pure.

Source: Kubernetes 1.36 `pkg/controller/job/job_controller.go`. Pods are counted by their tracking finalizer, so each
pod is counted exactly once. Differences: a failed pod is replaced after `Backoff` instead of 10 s to 600 s. Changes are
not batched for one second first. There is no backoffLimitPerIndex.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from trainjob_local.controllers.conditions import build_condition, find_condition, is_condition_true, with_condition
from trainjob_local.controllers.job_pods import (
    TRACKING_FINALIZER,
    build_pod,
    completion_index,
    format_indexes,
    has_ended,
    is_failed,
    is_ready,
    last_failure_time,
    parse_indexes,
)
from trainjob_local.controllers.job_policies import find_fail_job_message, find_success_message, is_ignored
from trainjob_local.controllers.writes import Create, Decision, Delete, EventWrite, Patch, Write, patch_status
from trainjob_local.objects import Json, format_timestamp, parse_timestamp

__all__ = ["Backoff", "decide", "remove_tracking_finalizer"]

_COMPONENT = "job-controller"
_REACHED = "Reached expected number of succeeded pods"
_LIMIT = "Job has reached the specified backoff limit"
_TOO_LONG = "Job was active longer than specified deadline"


@dataclass(frozen=True)
class Backoff:
    """The delay before a failed pod is replaced.

    Attributes:
        first: delay after the first failure, in seconds; doubled with each further failure.
        longest: upper limit of the delay, in seconds.
    """

    first: float = 1.0
    longest: float = 4.0

    def delay_after(self, failures: int) -> float:
        """Return the delay after this number of failures, in seconds."""
        return min(self.first * 2.0 ** max(0, failures - 1), self.longest)


def remove_tracking_finalizer(pod: Json) -> Patch:
    """Return the patch that removes the tracking finalizer from a pod."""
    kept = [one for one in pod["metadata"].get("finalizers") or [] if one != TRACKING_FINALIZER]
    return Patch("pods", pod, {"metadata": {"finalizers": kept or None}})


def decide(job: Json, pods: Sequence[Json], now: datetime, backoff: Backoff) -> Decision:
    """Decide which writes a Job needs.

    Args:
        job: the Job.
        pods: the pods that it owns.
        now: the current time.
        backoff: delays before failed pods are replaced.
    """
    tracked = [pod for pod in pods if TRACKING_FINALIZER in (pod["metadata"].get("finalizers") or [])]
    conditions = (job.get("status") or {}).get("conditions") or []
    if "deletionTimestamp" in job["metadata"]:
        return Decision([remove_tracking_finalizer(pod) for pod in tracked if has_ended(pod) or is_failed(pod)])
    if is_condition_true(conditions, "Complete") or is_condition_true(conditions, "Failed"):
        return Decision([remove_tracking_finalizer(pod) for pod in tracked])
    return _JobSync(job, pods, tracked, now, backoff).decide()


class _JobSync:
    """One reconciliation of a Job that has not ended.

    It counts the pods, then decides from the counts.
    """

    def __init__(
        self, job: Json, pods: Sequence[Json], tracked: Sequence[Json], now: datetime, backoff: Backoff
    ) -> None:
        self._job, self._spec, self._now, self._backoff = job, job["spec"], now, backoff
        self._pods = pods
        self._status: Json = dict(job.get("status") or {})
        self._conditions: list[Json] = list(self._status.get("conditions") or [])
        self._newly_finished = [pod for pod in tracked if has_ended(pod) or is_failed(pod)]
        self._active = [pod for pod in pods if not has_ended(pod) and "deletionTimestamp" not in pod["metadata"]]
        self._terminating = sum(not has_ended(pod) and "deletionTimestamp" in pod["metadata"] for pod in pods)
        counting = [pod for pod in self._newly_finished if is_failed(pod) and not is_ignored(job, pod)]
        self._failed = int(self._status.get("failed", 0)) + len(counting)
        self._indexed = self._spec.get("completionMode") == "Indexed"
        self._completed_indexes = parse_indexes(self._status.get("completedIndexes", ""))
        self._succeeded = self._count_succeeded()
        self._writes: list[Write] = []
        self._events: list[Write] = []
        self._requeue_after: float | None = None
        self._created_count = 0

    def decide(self) -> Decision:
        """Return the writes for the pods and the status of the Job.

        Finalizers are removed after the counts that include their pods are written.
        """
        self._update_start_time()
        failure = find_condition(self._conditions, "FailureTarget")
        success = find_condition(self._conditions, "SuccessCriteriaMet")
        limit = None if failure or success else self._exceeded_limit()
        if failure or limit:
            self._fail(failure or build_condition("FailureTarget", True, *(limit or ("", ""))))
        elif met := self._success_reason(success):
            self._delete_pods(self._active)
            self._finish("SuccessCriteriaMet", "Complete", *met)
        elif self._spec.get("suspend"):
            self._suspend()
        else:
            self._create_pods()
        status = self._build_status()
        if status != (self._job.get("status") or {}):
            self._writes.append(patch_status("jobs", self._job, status))
        return Decision(
            [*self._writes, *map(remove_tracking_finalizer, self._newly_finished), *self._events], self._requeue_after
        )

    def _count_succeeded(self) -> int:
        succeeded = [pod for pod in self._newly_finished if (pod.get("status") or {}).get("phase") == "Succeeded"]
        if not self._indexed:
            return int(self._status.get("succeeded", 0)) + len(succeeded)
        completions = int(self._spec.get("completions", 1))
        self._completed_indexes |= {
            index for index in map(completion_index, succeeded) if index is not None and index < completions
        }
        return len(self._completed_indexes)

    # -- ending ---------------------------------------------------------------------------------------------------

    def _success_reason(self, known: Json | None) -> tuple[str, str] | None:
        """Return reason and message of the success, or None if the Job has not succeeded."""
        if known is not None:
            return known["reason"], known["message"]
        if self._is_complete():
            return "CompletionsReached", _REACHED
        rule = find_success_message(self._job, self._completed_indexes)
        return ("SuccessPolicy", rule) if rule else None

    def _is_complete(self) -> bool:
        completions = self._spec.get("completions")
        if completions is None:  # a work queue: complete when one pod has succeeded and none is active
            return self._succeeded > 0 and not self._active
        return self._succeeded >= int(completions)

    def _exceeded_limit(self) -> tuple[str, str] | None:
        """Return reason and message of a limit that the Job has reached, or None."""
        if rule := find_fail_job_message(self._job, filter(is_failed, self._pods)):
            return "PodFailurePolicy", rule
        allowed = int(self._spec.get("backoffLimit", 6))
        if self._failed > allowed or self._exceeds_restarts(allowed):
            return "BackoffLimitExceeded", _LIMIT
        deadline, start = self._spec.get("activeDeadlineSeconds"), self._status.get("startTime")
        if deadline is None or start is None or self._spec.get("suspend"):
            return None
        self._requeue_after = (parse_timestamp(start) + timedelta(seconds=int(deadline)) - self._now).total_seconds()
        return ("DeadlineExceeded", _TOO_LONG) if self._requeue_after <= 0 else None

    def _exceeds_restarts(self, allowed: int) -> bool:
        """Return whether container restarts have reached the backoffLimit.

        With a backoffLimit of 0, the first restart reaches it. This applies only to the restart policy OnFailure. The
        restarts of a pod's containers count while the pod is active.
        """
        if self._spec["template"]["spec"].get("restartPolicy") != "OnFailure":
            return False
        restarts = 0
        for pod in self._active:
            status = pod.get("status") or {}
            statuses = [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]
            restarts += sum(int(one.get("restartCount", 0)) for one in statuses)
        return restarts > 0 if allowed == 0 else restarts >= allowed

    def _fail(self, target: Json) -> None:
        self._failed += len(self._active)
        self._delete_pods(self._active)
        self._finish("FailureTarget", "Failed", target["reason"], target["message"], kind="Warning")

    def _finish(self, criterion: str, final: str, reason: str, message: str, *, kind: str = "Normal") -> None:
        """Set the condition with the reason why the Job ends, and later the final condition.

        The final condition follows in a later reconciliation, when all pods are counted and none is terminating.
        """
        counted = is_condition_true(self._conditions, criterion)
        self._conditions = with_condition(
            self._conditions, build_condition(criterion, True, reason, message), self._now
        )
        if not counted or self._terminating:
            return
        self._conditions = with_condition(self._conditions, build_condition(final, True, reason, message), self._now)
        if final == "Complete":
            self._status["completionTime"] = format_timestamp(self._now)
            self._add_event("Normal", "Completed", "Job completed")
        else:
            self._add_event(kind, reason, message)

    # -- running --------------------------------------------------------------------------------------------------

    def _update_start_time(self) -> None:
        suspended = bool(self._spec.get("suspend"))
        if not suspended and "startTime" not in self._status:
            self._status["startTime"] = format_timestamp(self._now)
        if not suspended and is_condition_true(self._conditions, "Suspended"):
            resumed = build_condition("Suspended", False, "JobResumed", "Job resumed")
            self._conditions = with_condition(self._conditions, resumed, self._now)
            self._add_event("Normal", "Resumed", "Job resumed")

    def _suspend(self) -> None:
        self._delete_pods(self._active)
        self._status.pop("startTime", None)
        if not is_condition_true(self._conditions, "Suspended"):
            suspended = build_condition("Suspended", True, "JobSuspended", "Job suspended")
            self._conditions = with_condition(self._conditions, suspended, self._now)
            self._add_event("Normal", "Suspended", "Job suspended")

    def _create_pods(self) -> None:
        missing = self._missing_indexes()
        failed = [pod for pod in self._pods if is_failed(pod)]
        last = last_failure_time(failed)
        if missing and last is not None:
            pause = self._backoff.delay_after(self._failed) - (self._now - last).total_seconds()
            if pause > 0:
                self._requeue_after = pause if self._requeue_after is None else min(pause, self._requeue_after)
                return
        for index in missing:
            success_event = self._build_event("Normal", "SuccessfulCreate", "Created pod: {name}")
            failure_event = self._build_event("Warning", "FailedCreate", "Error creating: {error}")
            self._writes.append(
                Create("pods", build_pod(self._job, index), success_event=success_event, failure_event=failure_event)
            )
        self._created_count = len(missing)

    def _missing_indexes(self) -> Sequence[int | None]:
        parallelism = int(self._spec.get("parallelism", 1))
        completions = self._spec.get("completions")
        free_slots = parallelism - len(self._active)
        if completions is not None:
            free_slots = min(free_slots, int(completions) - self._succeeded - len(self._active))
        if not self._indexed:
            return [None] * max(0, free_slots if completions is not None or not self._succeeded else 0)
        taken = self._completed_indexes | {index for index in map(completion_index, self._active) if index is not None}
        free = [index for index in range(int(completions or 0)) if index not in taken]
        return free[: max(0, free_slots)]

    def _delete_pods(self, pods: Sequence[Json]) -> None:
        for pod in pods:
            success_event = self._build_event("Normal", "SuccessfulDelete", "Deleted pod: {name}")
            self._writes += [remove_tracking_finalizer(pod), Delete("pods", pod, success_event=success_event)]
        self._terminating += len(pods)
        self._active = []

    # -- status ---------------------------------------------------------------------------------------------------

    def _build_status(self) -> Json:
        counts = {
            "active": len(self._active) + self._created_count,
            "succeeded": self._succeeded,
            "failed": self._failed,
        }
        status = {key: value for key, value in self._status.items() if key not in (*counts, "conditions")}
        status |= {key: value for key, value in counts.items() if value}
        status |= {"ready": sum(map(is_ready, self._active)), "terminating": self._terminating}
        if self._conditions:
            status["conditions"] = [{"lastProbeTime": format_timestamp(self._now), **one} for one in self._conditions]
        if self._completed_indexes:
            status["completedIndexes"] = format_indexes(self._completed_indexes)
        return {**status, "uncountedTerminatedPods": {}}

    def _build_event(self, kind: str, reason: str, message: str) -> EventWrite:
        return EventWrite("jobs", self._job, kind, reason, message, _COMPONENT)

    def _add_event(self, kind: str, reason: str, message: str) -> None:
        self._events.append(self._build_event(kind, reason, message))
