"""Rules that decide when the wait for a TrainJob is over.

They do no I/O and read no clock. Every engine waits by the same rules, and tests of the rules take no time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import Any

from trainjob.client import ObjectEvent
from trainjob.errors import IncompatibleVersion
from trainjob.lifecycle.limit_starts import get_launch_start, get_queue_start
from trainjob.manifest.node_counts import read_shrinking
from trainjob.spec import Step
from trainjob.status import ContainerFailure, Finding, Phase, Verdict, derive_verdict, find_failures
from trainjob.status.diagnostics import get_event_findings, get_pod_findings, get_workload_findings, merge_findings
from trainjob.status.failure_rules import NO_RESERVATION, Category
from trainjob.status.nested_fields import get_int
from trainjob.status.outcome import RESTART_LIMIT_EXCEEDED
from trainjob.status.pods import reduce_to_evidence, restarts_in_place

_DURATIONS = ("queued", "starting", "total")
# The Trainer sets a TrainJob's counters shortly after its pods exist; Trainer 2.0 never sets them.
_JOBS_STATUS_SECONDS = 5.0
PODS, QUOTA = "pods", "quota"
_WAITS_FOR = {
    Phase.PENDING: PODS,
    Phase.STARTING: PODS,
    Phase.INITIALIZING: PODS,
    Phase.QUEUED: QUOTA,
}
MAX_DELETED_PODS = 1000  # whose last states one wait keeps; a JobSet that restarts replaces all its pods each time
_LIMITS = {
    Phase.QUEUED: "queued",
    Phase.SUSPENDED: "queued",
    Phase.PENDING: "starting",
    Phase.INITIALIZING: "starting",
    Phase.STARTING: "starting",
}
_SHRINKING = "shrinking"  # the limit of an attempt that is followed by one with fewer nodes
_MIN_LIMIT_SECONDS = 30.0  # of a limit, for each process
_MAX_REASONS = 3  # a message names at most this many reasons why the TrainJob does not start


class KillAction(str, Enum):
    """Action on a TrainJob whose wait timed out, or which was ended as failed."""

    DELETE = "delete"
    SUSPEND = "suspend"
    KEEP = "keep"


@dataclass(frozen=True)
class Limits:
    """Limits of a wait, and the actions when one is reached. A limit of None means no limit.

    Independent of the limits, a TrainJob that can no longer start is ended as failed, see
    `trainjob.status.failure_rules`.

    The limits `queued` and `starting` count from times of the cluster: they go on when another process continues the
    wait, and start again only when the TrainJob itself does.

    Attributes:
        queued: limit on each time in a queue or suspended.
        starting: limit on the time after the queue until all training pods are ready, including the initializers. For a
            process that continues the wait, it counts at least from the creation of the oldest pod that is not ready.
        total: limit on the whole wait.
        max_restarts: how often a container may be restarted in place before the TrainJob is ended as failed; None
            leaves it to the runtime. Stock runtimes restart a failing script about six times, and then its pod and log
            are deleted.
        on_timeout: action on the TrainJob when a limit is reached.
        on_failure: action on the TrainJob when it is ended as failed, because of `max_restarts` or because it can no
            longer start. A TrainJob that is suspended or kept is marked as failed, so a retry creates another attempt.
    """

    queued: timedelta | None = None
    starting: timedelta | None = None
    total: timedelta | None = None
    max_restarts: int | None = 0
    on_timeout: KillAction = KillAction.DELETE
    on_failure: KillAction = KillAction.DELETE

    @classmethod
    def of(cls, request: Step) -> Limits:
        """Return the limits of a wait for the TrainJob of a request."""
        return cls(
            queued=request.queue_timeout,
            starting=request.start_timeout,
            max_restarts=getattr(request, "max_restarts", cls.max_restarts),  # a step of our programs has no field
            on_timeout=KillAction(request.on_kill),
            on_failure=KillAction(request.on_failure),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the limits as JSON values, with durations in seconds."""
        durations = {name: getattr(self, name) for name in _DURATIONS}
        seconds = {name: value.total_seconds() for name, value in durations.items() if value is not None}
        actions = {"on_timeout": self.on_timeout.value, "on_failure": self.on_failure.value}
        return {**seconds, "max_restarts": self.max_restarts, **actions}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Limits:
        """Return the limits from the result of [to_dict][] of this or another version.

        Unknown keys are ignored, and missing ones get their defaults.

        Raises:
            IncompatibleVersion: a value cannot be read, such as an action that this version does not have.
        """
        try:
            known: dict[str, Any] = {name: timedelta(seconds=values[name]) for name in _DURATIONS if name in values}
            known |= {name: KillAction(values[name]) for name in ("on_timeout", "on_failure") if name in values}
            return cls(**known, max_restarts=values.get("max_restarts", cls.max_restarts))
        except (AttributeError, TypeError, ValueError, OverflowError) as error:
            raise IncompatibleVersion.of_values(cls.__name__, error) from None


@dataclass(frozen=True)
class WaitResult:
    """Result of a wait that is over.

    Attributes:
        verdict: phase of the TrainJob and its reason.
        timeout: message about the time limit that was reached; empty if the wait ended for another reason.
        advice: after a timeout, the remedy for the reason why the TrainJob did not start; empty if it is unknown.
        end_job: whether the waiter must end the TrainJob: it failed more often than allowed, or can no longer start.
    """

    verdict: Verdict
    timeout: str = ""
    advice: str = ""
    end_job: bool = False


class WaitPolicy:
    """State machine that decides when a wait is over, from events and times that it is given.

    It does no I/O and reads no clock.

    Attributes:
        clock_offset: seconds to add to a time of the policy's clock to get the API server's Unix time; None if it is
            not known, and the limits then count from what this process has observed.
    """

    def __init__(
        self,
        job: Mapping[str, Any],
        limits: Limits,
        on_phase: Callable[[Verdict], None],
        now: float,
        *,
        job_was_read: bool = True,
        clock_offset: float | None = None,
    ) -> None:
        """Start the wait for a TrainJob; all times are seconds of any monotonic clock.

        Args:
            job: the TrainJob as just read, or a dict with only its name, namespace and uid.
            limits: limits of the wait.
            on_phase: called with the verdict whenever its phase, reason or message has changed.
            now: the current time.
            job_was_read: whether `job` was read from the API server; until it is, only the `total` limit applies.
            clock_offset: see the attribute.
        """
        self.job, self.job_was_read, self._limits, self._on_phase = job, job_was_read, limits, on_phase
        self.pods: dict[str, Mapping[str, Any]] = {}
        self.deleted_pods: dict[str, Mapping[str, Any]] = {}
        self._verdict = derive_verdict(job) if job_was_read else Verdict(Phase.PENDING)
        self._last_notified = ""
        self._events: Sequence[Mapping[str, Any]] = ()
        self._fetched_findings: Sequence[Finding] = ()  # from events, or from the Kueue Workload
        self._findings_by_pod: dict[str, list[Finding]] = {}  # from each pod's status, by the pod's uid
        self._findings: Sequence[Finding] = ()
        self._previous_waits_for = ""
        self._first_found_at: dict[Category, float] = {}  # time at which each category was first found
        self._next_shown_at = math.inf  # time at which a finding with a delay is shown
        self._started_at, self._first_pod_at = now, math.inf
        self.clock_offset = clock_offset
        self._limit_name: str | None = None  # the limit that applies in the current phase; None before the first one
        self._limit_seen_at = now  # when this process first saw the TrainJob in a phase of this limit
        self._limit_start = self._limit_not_before = -math.inf
        self._deadlines = {
            name: now + limit.total_seconds() for name, limit in [("total", limits.total)] if limit is not None
        }
        self._update_deadlines(now)

    def observe_job(self, event: ObjectEvent, now: float) -> WaitResult | None:
        """Handle an event of the TrainJob, and return a result if the TrainJob has finished.

        Raises:
            ClusterError: the informer failed.
        """
        if event.error:
            raise event.error
        if event.object is None or event.object["metadata"]["uid"] != self.job["metadata"]["uid"]:
            return None
        self.job, self.job_was_read = event.object, True
        self._update_verdict(now, deleted=event.deleted)
        self._notify()
        return WaitResult(self._verdict) if self._verdict.phase.finished else None

    def observe_pod(self, event: ObjectEvent, now: float) -> WaitResult | None:
        """Handle an event of a pod, and return a result if a container was restarted too often.

        An error of the pod informer does not end the wait.
        """
        pod = event.object
        if pod is None:
            return None
        uid = pod["metadata"]["uid"]
        if event.deleted:
            self.pods.pop(uid, None)
            self._findings_by_pod.pop(uid, None)
            # The Job controller deletes the pods of a failed Job, so keep their last states.
            self.deleted_pods[uid] = reduce_to_evidence(pod, self._to_cluster_time(now))
            if len(self.deleted_pods) > MAX_DELETED_PODS:  # keep the first one, whose start is that of the TrainJob
                _, oldest = itertools.islice(self.deleted_pods, 2)
                del self.deleted_pods[oldest]
            return None
        self.pods[uid] = pod
        self._findings_by_pod[uid] = get_pod_findings(pod)
        self._first_pod_at = min(self._first_pod_at, now)
        self._update_verdict(now)
        self._notify()
        limit = self._limits.max_restarts
        if limit is not None and restarts_in_place(pod) and not pod["metadata"].get("deletionTimestamp"):
            exceeded = [
                failure
                for failure in find_failures([pod])
                if failure.count > limit and failure.exit_code is not None and not failure.lost
            ]
            if exceeded:
                return WaitResult(_restart_limit_verdict(exceeded[0], limit, self._limits.on_failure), end_job=True)
        return None

    def update_diagnosis(
        self, events: Sequence[Mapping[str, Any]], workload: Mapping[str, Any] | None, now: float
    ) -> None:
        """Replace the findings from Warning events and from the Kueue Workload.

        Args:
            events: Warning events about the TrainJob and its objects.
            workload: its Kueue Workload; None if it was not found or not fetched.
            now: the current time.
        """
        self._update_verdict(now)
        self._events = events
        self._fetched_findings = get_workload_findings(workload) if self.waits_for == QUOTA else self._find_in_events()
        self._update_findings(now)
        self._notify()

    def _find_in_events(self) -> list[Finding]:
        return get_event_findings(self._events, self.job, self.pods.values())

    def evaluate(self, now: float) -> WaitResult | None:
        """Return a result if the TrainJob can no longer start or a limit is reached, else None."""
        if self.waits_for == PODS:
            self._fetched_findings = self._find_in_events()
        if self._update_verdict(now):
            self._notify()
        return self._check_unrecoverable(now) or self.check_deadlines(now)

    def check_deadlines(self, now: float) -> WaitResult | None:
        """Return a result if a limit is reached by now, else None.

        The phase is the one of the last evaluation.
        """
        reached = [name for name, deadline in self._deadlines.items() if deadline <= now]
        if not reached:
            return None
        if reached == [_SHRINKING]:
            message = f"no reservation for {get_int(self.job, 'spec', 'trainer', 'numNodes')} nodes"
            seconds = now - self._limit_start
            return WaitResult(Verdict(Phase.FAILED, NO_RESERVATION, f"{message} within {seconds:.0f} s"), end_job=True)
        seconds = now - (self._started_at if reached[0] == "total" else self._limit_start)
        timeout = f"the limit on its {reached[0]} time is reached after {seconds:.0f} s"
        advice = self._findings[0].rule.advice if self._findings else ""
        return WaitResult(self._verdict_with_reasons(), timeout=timeout, advice=advice)

    def _check_unrecoverable(self, now: float) -> WaitResult | None:
        for finding in self._findings:
            grace = finding.rule.grace
            if grace is not None and now >= self._first_found_at[finding.category] + grace:
                message = f"{finding.object_name}: {finding.message}"
                return WaitResult(Verdict(Phase.FAILED, finding.reason, message, finding.step), end_job=True)
        return None

    def seconds_until_evaluation(self, now: float) -> float | None:
        """Return the seconds until [evaluate][] may return a result; None means never."""
        grace_periods = [(self._first_found_at[finding.category], finding.rule.grace) for finding in self._findings]
        moments = [*self._deadlines.values(), *(since + grace for since, grace in grace_periods if grace is not None)]
        if self._next_shown_at < math.inf:
            moments.append(self._next_shown_at)
        pods_are_used_at = self._first_pod_at + _JOBS_STATUS_SECONDS
        if now < pods_are_used_at < math.inf and not (self.job.get("status") or {}).get("jobsStatus"):
            moments.append(pods_are_used_at)
        return max(0.0, min(moments) - now) if moments else None

    @property
    def waits_for(self) -> str:
        """Cause why the TrainJob does not run yet: [PODS][], [QUOTA][], or empty.

        [PODS][] means that pods are not ready, which events explain. [QUOTA][] means that Kueue does not admit the
        TrainJob, which its Workload explains. It is empty in every other phase, and until the TrainJob was read.
        """
        return _WAITS_FOR.get(self._verdict.phase, "") if self.job_was_read else ""

    def _update_verdict(self, now: float, *, deleted: bool = False) -> bool:
        """Evaluate the TrainJob and its pods again, and return whether anything changed."""
        before = self._verdict_with_reasons()
        verdict = derive_verdict(
            self.job, self.pods.values() if now - self._first_pod_at >= _JOBS_STATUS_SECONDS else ()
        )
        self._verdict = derive_verdict(None) if deleted and not verdict.phase.finished else verdict
        self._update_findings(now)
        self._update_deadlines(now)
        return self._verdict_with_reasons() != before

    def _update_findings(self, now: float) -> None:
        """Update the findings that explain why the TrainJob does not start.

        Each category keeps the time when it was first found. A TrainJob that waits for nothing has no findings, except
        that of a sidecar that does not end.
        """
        # Findings about pods do not explain missing quota, and vice versa.
        if self.waits_for != self._previous_waits_for:
            self._previous_waits_for, self._events, self._fetched_findings = self.waits_for, (), ()
        pod_findings = [
            finding
            for findings in self._findings_by_pod.values()
            for finding in findings
            if self.waits_for == PODS or (self._verdict.phase is Phase.RUNNING and finding.category is Category.SIDECAR)
        ]
        found = merge_findings([*pod_findings, *self._fetched_findings])
        kinds = {finding.category for finding in found}
        self._first_found_at = {kind: self._first_found_at.get(kind, now) for kind in kinds}
        shown_at = {finding: self._first_found_at[finding.category] + finding.rule.delay for finding in found}
        self._findings = tuple(finding for finding in found if shown_at[finding] <= now)
        self._next_shown_at = min((moment for moment in shown_at.values() if moment > now), default=math.inf)

    def _update_deadlines(self, now: float) -> None:
        """Update when the limits on the queue and on the start are reached.

        A limit that was reached before this process began still leaves it 30 s. In this time, it sees the pods, and a
        Trainer that was away updates the conditions.
        """
        if not self.job_was_read:
            return
        name = _LIMITS.get(self._verdict.phase, "")
        if name != self._limit_name:
            self._limit_not_before = -math.inf if self._limit_name is None else self._limit_seen_at
            self._limit_name, self._limit_seen_at, self._limit_start = name, now, -math.inf
            self._deadlines.pop("queued", None)
            self._deadlines.pop("starting", None)
        limit = {"queued": self._limits.queued, "starting": self._limits.starting}.get(name)
        seconds_by_name = {name: limit.total_seconds()} if limit is not None else {}
        self._deadlines.pop(_SHRINKING, None)
        if (shrinking := read_shrinking(self.job)) and self._has_no_reservation:
            seconds_by_name[_SHRINKING] = shrinking.after
        if seconds_by_name:
            self._limit_start = max(self._limit_start, self._find_limit_start(name))
        for each, seconds in seconds_by_name.items():
            earliest = self._limit_seen_at + min(seconds, _MIN_LIMIT_SECONDS)
            self._deadlines[each] = max(self._limit_start + seconds, earliest)

    @property
    def _has_no_reservation(self) -> bool:
        """Whether the TrainJob waits for the quota of its queue, or for free nodes."""
        is_unschedulable = any(each.category is Category.UNSCHEDULABLE for each in self._findings)
        return self._verdict.phase is Phase.QUEUED or (bool(self.waits_for) and is_unschedulable)

    def _to_cluster_time(self, time: float) -> datetime | None:
        return None if self.clock_offset is None else datetime.fromtimestamp(time + self.clock_offset, timezone.utc)

    def _find_limit_start(self, name: str) -> float:
        """Return the time of this policy's clock from which a limit counts.

        It is the cluster's time, or the time of the first observation if that is unknown. It also is the latter if this
        process saw the TrainJob in another phase since the cluster's time, for example running until a node was
        drained.
        """
        seen = self._to_cluster_time(self._limit_seen_at)
        if self.clock_offset is None or seen is None:
            return self._limit_seen_at
        queued = name == "queued"
        start = get_queue_start(self.job) if queued else get_launch_start(self.job, self.pods.values(), seen)
        time = start.timestamp() - self.clock_offset if start else math.inf
        return time if self._limit_not_before < time < self._limit_seen_at else self._limit_seen_at

    def _verdict_with_reasons(self) -> Verdict:
        """Return the verdict with the main reasons why the TrainJob does not start."""
        verdict = self._verdict
        if not self._findings:
            return verdict
        reasons = [str(finding) for finding in self._findings[:_MAX_REASONS]]
        if verdict.message:
            reasons.insert(0, verdict.message)
        return Verdict(verdict.phase, verdict.reason, "; ".join(reasons), verdict.step)

    def _notify(self) -> None:
        verdict = self._verdict_with_reasons()
        rule = self._findings[0].rule if self._findings else None
        if (
            rule and not rule.retryable and rule.grace is None
        ):  # the wait does not end, and only the user can solve the problem
            verdict = replace(verdict, message=f"{verdict.message}: {rule.advice}")
        if str(verdict) != self._last_notified:
            self._last_notified = str(verdict)
            self._on_phase(verdict)


def _restart_limit_verdict(failure: ContainerFailure, limit: int, on_failure: KillAction) -> Verdict:
    message = (
        f"container {failure.container} of pod {failure.pod} failed {failure.count} time{'s' * (failure.count > 1)} "
        f"(last: {failure.reason}, exit code {failure.exit_code}); max_restarts is {limit}"
    )
    if on_failure is KillAction.DELETE:  # else a user looks for the TrainJob in vain
        message += " and on_failure is 'delete', so the TrainJob is deleted"
    return Verdict(Phase.FAILED, RESTART_LIMIT_EXCEEDED, message, failure.step)
