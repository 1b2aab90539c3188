"""The decisions of waiting: pure, so that every engine waits by the same rules and each rule is tested in no time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import Any

from trainjob.client import ObjectEvent
from trainjob.errors import InvalidSpec, Problem
from trainjob.status import ContainerFailure, Finding, Phase, Verdict, failures, judge
from trainjob.status.findings import of_events, of_pod, of_workload, weighed
from trainjob.status.outcome import RESTART_LIMIT_EXCEEDED
from trainjob.status.pods import restarts_in_place
from trainjob.status.trouble import Category

_DURATIONS = ("queued", "starting", "total")
# A TrainJob's counters come a moment after its pods; from Trainer 2.0 they never come.
_COUNTERS_SECONDS = 5.0
PODS, QUOTA = "pods", "quota"
_WAITS_FOR = {
    Phase.PENDING: PODS,
    Phase.STARTING: PODS,
    Phase.INITIALIZING: PODS,
    Phase.QUEUED: QUOTA,
}
_TOLD = 3  # reasons why a job does not get going, of many


class OnTimeout(str, Enum):
    """What becomes of a TrainJob that we stop waiting for."""

    DELETE = "delete"
    SUSPEND = "suspend"
    KEEP = "keep"


@dataclass(frozen=True)
class Limits:
    """How long to wait, and what to do then. None means for ever.

    Whatever the limits, a job that can't get going any more is ended as failed: see [trainjob.status.trouble][].

    Attributes:
        queued: for quota or resumption, each time.
        starting: from then on until all training pods are ready, initializers included.
        total: from the start of the waiting to the end.
        max_restarts: how often a container may be restarted in place before the job is ended as failed; None leaves it
            to the runtime. Stock runtimes restart a failing script about six times and then delete its pod and log.
        on_timeout: what becomes of the job.
        on_failure: what becomes of it when it is ended as failed: by `max_restarts`, or because waiting is hopeless.
            One that is suspended or kept is marked as failed, so that a retry makes another attempt.
    """

    queued: timedelta | None = None
    starting: timedelta | None = None
    total: timedelta | None = None
    max_restarts: int | None = 0
    on_timeout: OnTimeout = OnTimeout.DELETE
    on_failure: OnTimeout = OnTimeout.DELETE

    def to_dict(self) -> dict[str, Any]:
        """As JSON values; durations in seconds."""
        durations = {name: getattr(self, name) for name in _DURATIONS}
        seconds = {name: value.total_seconds() for name, value in durations.items() if value is not None}
        actions = {"on_timeout": self.on_timeout.value, "on_failure": self.on_failure.value}
        return {**seconds, "max_restarts": self.max_restarts, **actions}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Limits:
        """The inverse of [to_dict][].

        Raises:
            InvalidSpec: it is no such dict.
        """
        try:
            durations = {name: timedelta(seconds=values[name]) for name in _DURATIONS if name in values}
            restarts, on_timeout = values["max_restarts"], OnTimeout(values["on_timeout"])
            on_failure = OnTimeout(values.get("on_failure", OnTimeout.DELETE))
            return cls(**durations, max_restarts=restarts, on_timeout=on_timeout, on_failure=on_failure)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            what = f"it must be what Limits.to_dict gave ({type(error).__name__}: {error})"
            raise InvalidSpec(Problem("limits", f"a {type(values).__name__}", what)) from None


@dataclass(frozen=True)
class WaitResult:
    """The waiting is over.

    Attributes:
        verdict: how it stands.
        timeout: which limit was reached, as words; empty when the job has ended.
        advice: with a timeout, what to do about what kept the job from getting on.
        end_job: the job must be ended by us: it failed more often than it may, or waiting for it is hopeless.
    """

    verdict: Verdict
    timeout: str = ""
    advice: str = ""
    end_job: bool = False


class WaitPolicy:
    """Decides, from what the watches tell and the time, when the waiting is over. No IO, no clock of its own."""

    def __init__(
        self,
        job: Mapping[str, Any],
        limits: Limits,
        on_phase: Callable[[Verdict], None],
        now: float,
        *,
        seen: bool = True,
    ) -> None:
        """Start from a TrainJob; times are seconds of any monotonic clock.

        Args:
            job: as just read, or its name, namespace and uid only.
            limits: how long to wait.
            on_phase: told when the phase has changed.
            now: the time.
            seen: the job was read; until it is, nothing counts but the limit on the whole.
        """
        self.job, self.seen, self._limits, self._on_phase = job, seen, limits, on_phase
        self.pods: dict[str, Mapping[str, Any]] = {}
        self.former_pods: dict[str, Mapping[str, Any]] = {}
        self._verdict, self._told = judge(job), ""
        self._events: Sequence[Mapping[str, Any]] = ()
        self._heard: list[Finding] = []  # in events, or of Kueue
        self._by_pod: dict[str, list[Finding]] = {}  # in each pod that waits, by uid
        self._findings: list[Finding] = []
        self._waited_for = ""
        self._since: dict[Category, float] = {}  # when each kind of trouble was first seen
        self._began, self._first_pod = now, math.inf
        self._deadlines = {
            name: now + limit.total_seconds() for name, limit in [("total", limits.total)] if limit is not None
        }
        self._set_deadlines(now)

    def observe_job(self, change: ObjectEvent, now: float) -> WaitResult | None:
        """The TrainJob has changed."""
        if change.error:
            raise change.error
        if change.found is None or change.found["metadata"]["uid"] != self.job["metadata"]["uid"]:
            return None
        self.job, self.seen = change.found, True
        self._review(now, gone=change.gone)
        self._tell()
        return WaitResult(self._verdict) if self._verdict.phase.finished else None

    def observe_pod(self, change: ObjectEvent, now: float) -> WaitResult | None:
        """A pod of the TrainJob has changed. An informer that can't see pods is no reason to stop waiting."""
        pod = change.found
        if pod is None:
            return None
        uid = pod["metadata"]["uid"]
        if change.gone:
            self.pods.pop(uid, None)
            self._by_pod.pop(uid, None)
            self.former_pods[uid] = pod  # a Job that gives up deletes its pod: this is all that is left of it
            return None
        self.pods[uid] = pod
        self._by_pod[uid] = of_pod(pod)
        self._first_pod = min(self._first_pod, now)
        self._review(now)
        self._tell()
        limit = self._limits.max_restarts
        if limit is not None and restarts_in_place(pod) and not pod["metadata"].get("deletionTimestamp"):
            over = [failure for failure in failures([pod]) if failure.count > limit and failure.exit_code is not None]
            if over:
                return WaitResult(_too_many(over[0], limit), end_job=True)
        return None

    def learn(self, events: Sequence[Mapping[str, Any]], workload: Mapping[str, Any] | None, now: float) -> None:
        """What the Warning events about the job, and its Kueue Workload, are now."""
        self._review(now)
        self._events = events
        self._heard = of_workload(workload) if self.waits_for == QUOTA else self._still_heard()
        self._find(now)
        self._tell()

    def _still_heard(self) -> list[Finding]:
        return of_events(self._events, self.job, self.pods.values())

    def expire(self, now: float) -> WaitResult | None:
        """Time has passed: is waiting on hopeless, or a limit reached?"""
        if self.waits_for == PODS:
            self._heard = self._still_heard()
        if self._review(now):
            self._tell()
        return self._despair(now) or self.overdue(now)

    def overdue(self, now: float) -> WaitResult | None:
        """Is a limit reached, as the job was judged last?"""
        reached = [name for name, deadline in self._deadlines.items() if deadline <= now]
        if not reached:
            return None
        timeout = f"the limit on its {reached[0]} time is reached after {now - self._began:.0f} s"
        advice = self._findings[0].rule.advice if self._findings else ""
        return WaitResult(self._shown(), timeout=timeout, advice=advice)

    def _despair(self, now: float) -> WaitResult | None:
        for finding in self._findings:
            grace = finding.rule.grace
            if grace is not None and now >= self._since[finding.category] + grace:
                message = f"{finding.where}: {finding.message}"
                return WaitResult(Verdict(Phase.FAILED, finding.reason, message, finding.step), end_job=True)
        return None

    def patience(self, now: float) -> float | None:
        """Seconds until [expire][] may have something to say; None means never."""
        graces = [(self._since[finding.category], finding.rule.grace) for finding in self._findings]
        moments = [*self._deadlines.values(), *(since + grace for since, grace in graces if grace is not None)]
        pods_count = self._first_pod + _COUNTERS_SECONDS
        if now < pods_count < math.inf and not (self.job.get("status") or {}).get("jobsStatus"):
            moments.append(pods_count)
        return max(0.0, min(moments) - now) if moments else None

    @property
    def waits_for(self) -> str:
        """What the job needs next: [PODS][] that are ready, told by events; [QUOTA][], told by Kueue; else empty."""
        return _WAITS_FOR.get(self._verdict.phase, "") if self.seen else ""

    def _review(self, now: float, *, gone: bool = False) -> bool:
        """Judge anew; says whether the verdict is another one."""
        before = self._verdict
        verdict = judge(self.job, self.pods.values() if now - self._first_pod >= _COUNTERS_SECONDS else ())
        self._verdict = judge(None) if gone and not verdict.phase.finished else verdict
        self._set_deadlines(now)
        self._find(now)
        return self._verdict != before

    def _find(self, now: float) -> None:
        """What keeps the job from getting going, and since when; one that is on its way is kept by nothing."""
        if self.waits_for != self._waited_for:  # what is known of the one says nothing about the other
            self._waited_for, self._events, self._heard = self.waits_for, (), []
        seen = [finding for findings in self._by_pod.values() for finding in findings] if self.waits_for == PODS else []
        self._findings = weighed([*seen, *self._heard])
        kinds = {finding.category for finding in self._findings}
        self._since = {kind: self._since.get(kind, now) for kind in kinds}

    def _set_deadlines(self, now: float) -> None:
        if not self.seen:
            return
        phase = self._verdict.phase
        for name, phases, limit in (
            ("queued", (Phase.QUEUED, Phase.SUSPENDED), self._limits.queued),
            ("starting", (Phase.PENDING, Phase.INITIALIZING, Phase.STARTING), self._limits.starting),
        ):
            if phase not in phases:
                self._deadlines.pop(name, None)
            elif limit is not None:
                self._deadlines.setdefault(name, now + limit.total_seconds())

    def _shown(self) -> Verdict:
        """The verdict with what a person wants to know most while it lasts: why it does not get on."""
        verdict = self._verdict
        if not self._findings:
            return verdict
        reasons = [str(finding) for finding in self._findings[:_TOLD]]
        if verdict.message:
            reasons.insert(0, verdict.message)
        return Verdict(verdict.phase, verdict.reason, "; ".join(reasons), verdict.step)

    def _tell(self) -> None:
        verdict = self._shown()
        rule = self._findings[0].rule if self._findings else None
        if rule and not rule.retryable and rule.grace is None:  # nothing ends it, and waiting alone does not help
            verdict = replace(verdict, message=f"{verdict.message}: {rule.advice}")
        if str(verdict) != self._told:
            self._told = str(verdict)
            self._on_phase(verdict)


def _too_many(failure: ContainerFailure, limit: int) -> Verdict:
    message = (
        f"container {failure.container} of pod {failure.pod} failed {failure.count} time{'s' * (failure.count > 1)} "
        f"(last: {failure.reason}, exit code {failure.exit_code}); max_restarts is {limit}"
    )
    return Verdict(Phase.FAILED, RESTART_LIMIT_EXCEEDED, message, failure.step)
