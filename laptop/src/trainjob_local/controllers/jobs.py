"""The Job controller; the function that decides is pure.

Source: Kubernetes 1.36 `pkg/controller/job/job_controller.go`. Pods are counted by their tracking finalizer, so each
pod is counted exactly once. Differences: a failed pod is replaced after `Backoff` instead of 10 s to 600 s. Changes are
not batched for one second first. There is no backoffLimitPerIndex.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from trainjob_local.controllers.conditions import condition, find_condition, is_true, with_condition
from trainjob_local.controllers.job_pods import (
    TRACKED,
    build_pod,
    failed_at,
    has_ended,
    index_of,
    indexes_of,
    indexes_text,
    is_failed,
    is_ready,
)
from trainjob_local.controllers.job_policies import failed_by_rule, is_ignored, succeeded_by_rule
from trainjob_local.controllers.writes import Create, Decision, Delete, Note, Patch, Write, set_status
from trainjob_local.objects import Json, rfc3339, timestamp

__all__ = ["Backoff", "decide", "released"]

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

    def after(self, failures: int) -> float:
        """Return the delay after this number of failures, in seconds."""
        return min(self.first * 2.0 ** max(0, failures - 1), self.longest)


def released(pod: Json) -> Patch:
    """Return the patch that removes the tracking finalizer from a pod."""
    kept = [one for one in pod["metadata"].get("finalizers") or [] if one != TRACKED]
    return Patch("pods", pod, {"metadata": {"finalizers": kept or None}})


def decide(job: Json, pods: Sequence[Json], now: datetime, backoff: Backoff) -> Decision:
    """Decide which writes a Job needs.

    Args:
        job: the Job.
        pods: the pods that it owns.
        now: the current time.
        backoff: delays before failed pods are replaced.
    """
    tracked = [pod for pod in pods if TRACKED in (pod["metadata"].get("finalizers") or [])]
    conditions = (job.get("status") or {}).get("conditions") or []
    if "deletionTimestamp" in job["metadata"]:
        return Decision([released(pod) for pod in tracked if has_ended(pod) or is_failed(pod)])
    if is_true(conditions, "Complete") or is_true(conditions, "Failed"):
        return Decision([released(pod) for pod in tracked])
    return _Sync(job, pods, tracked, now, backoff).decision()


class _Sync:
    """One reconciliation of a Job that has not ended.

    It counts the pods, then acts on the counts.
    """

    def __init__(
        self, job: Json, pods: Sequence[Json], tracked: Sequence[Json], now: datetime, backoff: Backoff
    ) -> None:
        self._job, self._spec, self._now, self._backoff = job, job["spec"], now, backoff
        self._pods = pods
        self._status: Json = dict(job.get("status") or {})
        self._conditions: list[Json] = list(self._status.get("conditions") or [])
        self._counted = [pod for pod in tracked if has_ended(pod) or is_failed(pod)]
        self._active = [pod for pod in pods if not has_ended(pod) and "deletionTimestamp" not in pod["metadata"]]
        self._terminating = sum(not has_ended(pod) and "deletionTimestamp" in pod["metadata"] for pod in pods)
        counting = [pod for pod in self._counted if is_failed(pod) and not is_ignored(job, pod)]
        self._failed = int(self._status.get("failed", 0)) + len(counting)
        self._indexed = self._spec.get("completionMode") == "Indexed"
        self._done = indexes_of(self._status.get("completedIndexes", ""))
        self._succeeded = self._count_succeeded()
        self._writes: list[Write] = []
        self._notes: list[Write] = []
        self._again: float | None = None
        self._started = 0

    def decision(self) -> Decision:
        """Return the writes for the pods and the status of the Job.

        Finalizers are removed after the counts that include their pods are written.
        """
        self._start_time()
        failure = find_condition(self._conditions, "FailureTarget")
        success = find_condition(self._conditions, "SuccessCriteriaMet")
        limit = None if failure or success else self._limit()
        if failure or limit:
            self._fail(failure or condition("FailureTarget", True, *(limit or ("", ""))))
        elif met := self._met(success):
            self._delete(self._active)
            self._end("SuccessCriteriaMet", "Complete", *met)
        elif self._spec.get("suspend"):
            self._suspend()
        else:
            self._run()
        status = self._next_status()
        if status != (self._job.get("status") or {}):
            self._writes.append(set_status("jobs", self._job, status))
        return Decision([*self._writes, *map(released, self._counted), *self._notes], self._again)

    def _count_succeeded(self) -> int:
        succeeded = [pod for pod in self._counted if (pod.get("status") or {}).get("phase") == "Succeeded"]
        if not self._indexed:
            return int(self._status.get("succeeded", 0)) + len(succeeded)
        completions = int(self._spec.get("completions", 1))
        self._done |= {index for index in map(index_of, succeeded) if index is not None and index < completions}
        return len(self._done)

    # -- ending ---------------------------------------------------------------------------------------------------

    def _met(self, known: Json | None) -> tuple[str, str] | None:
        """Return reason and message of the success, or None if the Job has not succeeded."""
        if known is not None:
            return known["reason"], known["message"]
        if self._complete():
            return "CompletionsReached", _REACHED
        rule = succeeded_by_rule(self._job, self._done)
        return ("SuccessPolicy", rule) if rule else None

    def _complete(self) -> bool:
        completions = self._spec.get("completions")
        if completions is None:  # a work queue: complete when one pod has succeeded and none is active
            return self._succeeded > 0 and not self._active
        return self._succeeded >= int(completions)

    def _limit(self) -> tuple[str, str] | None:
        """Return reason and message of a limit that the Job has reached, or None."""
        if rule := failed_by_rule(self._job, filter(is_failed, self._pods)):
            return "PodFailurePolicy", rule
        allowed = int(self._spec.get("backoffLimit", 6))
        if self._failed > allowed or self._restarted_too_often(allowed):
            return "BackoffLimitExceeded", _LIMIT
        deadline, start = self._spec.get("activeDeadlineSeconds"), self._status.get("startTime")
        if deadline is None or start is None or self._spec.get("suspend"):
            return None
        self._again = (rfc3339(start) + timedelta(seconds=int(deadline)) - self._now).total_seconds()
        return ("DeadlineExceeded", _TOO_LONG) if self._again <= 0 else None

    def _restarted_too_often(self, allowed: int) -> bool:
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
        self._delete(self._active)
        self._end("FailureTarget", "Failed", target["reason"], target["message"], kind="Warning")

    def _end(self, first: str, last: str, reason: str, message: str, *, kind: str = "Normal") -> None:
        """Set the condition that says why the Job ends, and later the final condition.

        The final condition follows in a later reconciliation, when all pods are counted and none is terminating.
        """
        counted = is_true(self._conditions, first)
        self._conditions = with_condition(self._conditions, condition(first, True, reason, message), self._now)
        if not counted or self._terminating:
            return
        self._conditions = with_condition(self._conditions, condition(last, True, reason, message), self._now)
        if last == "Complete":
            self._status["completionTime"] = timestamp(self._now)
            self._note("Normal", "Completed", "Job completed")
        else:
            self._note(kind, reason, message)

    # -- running --------------------------------------------------------------------------------------------------

    def _start_time(self) -> None:
        suspended = bool(self._spec.get("suspend"))
        if not suspended and "startTime" not in self._status:
            self._status["startTime"] = timestamp(self._now)
        if not suspended and is_true(self._conditions, "Suspended"):
            resumed = condition("Suspended", False, "JobResumed", "Job resumed")
            self._conditions = with_condition(self._conditions, resumed, self._now)
            self._note("Normal", "Resumed", "Job resumed")

    def _suspend(self) -> None:
        self._delete(self._active)
        self._status.pop("startTime", None)
        if not is_true(self._conditions, "Suspended"):
            suspended = condition("Suspended", True, "JobSuspended", "Job suspended")
            self._conditions = with_condition(self._conditions, suspended, self._now)
            self._note("Normal", "Suspended", "Job suspended")

    def _run(self) -> None:
        missing = self._missing()
        failed = [pod for pod in self._pods if is_failed(pod)]
        last = failed_at(failed)
        if missing and last is not None:
            pause = self._backoff.after(self._failed) - (self._now - last).total_seconds()
            if pause > 0:
                self._again = pause if self._again is None else min(pause, self._again)
                return
        for index in missing:
            announce = self._event("Normal", "SuccessfulCreate", "Created pod: {name}")
            complain = self._event("Warning", "FailedCreate", "Error creating: {error}")
            self._writes.append(Create("pods", build_pod(self._job, index), announce=announce, complain=complain))
        self._started = len(missing)

    def _missing(self) -> Sequence[int | None]:
        parallelism = int(self._spec.get("parallelism", 1))
        completions = self._spec.get("completions")
        room = parallelism - len(self._active)
        if completions is not None:
            room = min(room, int(completions) - self._succeeded - len(self._active))
        if not self._indexed:
            return [None] * max(0, room if completions is not None or not self._succeeded else 0)
        taken = self._done | {index for index in map(index_of, self._active) if index is not None}
        free = [index for index in range(int(completions or 0)) if index not in taken]
        return free[: max(0, room)]

    def _delete(self, pods: Sequence[Json]) -> None:
        for pod in pods:
            announce = self._event("Normal", "SuccessfulDelete", "Deleted pod: {name}")
            self._writes += [released(pod), Delete("pods", pod, announce=announce)]
        self._terminating += len(pods)
        self._active = []

    # -- status ---------------------------------------------------------------------------------------------------

    def _next_status(self) -> Json:
        counts = {"active": len(self._active) + self._started, "succeeded": self._succeeded, "failed": self._failed}
        status = {key: value for key, value in self._status.items() if key not in (*counts, "conditions")}
        status |= {key: value for key, value in counts.items() if value}
        status |= {"ready": sum(map(is_ready, self._active)), "terminating": self._terminating}
        if self._conditions:
            status["conditions"] = [{"lastProbeTime": timestamp(self._now), **one} for one in self._conditions]
        if self._done:
            status["completedIndexes"] = indexes_text(self._done)
        return {**status, "uncountedTerminatedPods": {}}

    def _event(self, kind: str, reason: str, message: str) -> Note:
        return Note("jobs", self._job, kind, reason, message, _COMPONENT)

    def _note(self, kind: str, reason: str, message: str) -> None:
        self._notes.append(self._event(kind, reason, message))
