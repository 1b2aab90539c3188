"""The decisions of waiting: pure, so that every engine waits by the same rules and each rule is tested in no time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any

from trainjob.cluster import Change
from trainjob.status import ContainerFailure, Phase, Verdict, failures, judge, pending_reasons
from trainjob.status.outcome import RESTART_LIMIT_EXCEEDED
from trainjob.status.pods import restarts_in_place

_DURATIONS = ("queued", "starting", "total")
# A TrainJob's counters come a moment after its pods; from Trainer 2.0 they never come.
_COUNTERS_SECONDS = 5.0


class OnTimeout(str, Enum):
    """What becomes of a TrainJob that we stop waiting for."""

    DELETE = "delete"
    SUSPEND = "suspend"
    KEEP = "keep"


@dataclass(frozen=True)
class Limits:
    """How long to wait, and what to do then. None means for ever.

    Attributes:
        queued: for quota or resumption, each time.
        starting: from then on until all training pods are ready, initializers included.
        total: from the start of the waiting to the end.
        max_restarts: how often a container may be restarted in place before the job is ended as failed; None leaves it
            to the runtime. Stock runtimes restart a failing script about six times and then delete its pod and log.
        on_timeout: what becomes of the job.
    """

    queued: timedelta | None = None
    starting: timedelta | None = None
    total: timedelta | None = None
    max_restarts: int | None = 0
    on_timeout: OnTimeout = OnTimeout.DELETE

    def to_dict(self) -> dict[str, Any]:
        """As JSON values; durations in seconds."""
        durations = {name: getattr(self, name) for name in _DURATIONS}
        seconds = {name: value.total_seconds() for name, value in durations.items() if value is not None}
        return {**seconds, "max_restarts": self.max_restarts, "on_timeout": self.on_timeout.value}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Limits:
        """The inverse of [to_dict][]."""
        durations = {name: timedelta(seconds=values[name]) for name in _DURATIONS if name in values}
        return cls(**durations, max_restarts=values["max_restarts"], on_timeout=OnTimeout(values["on_timeout"]))


@dataclass(frozen=True)
class Decision:
    """The waiting is over.

    Attributes:
        verdict: how it stands.
        timeout: which limit was reached, as words; empty when the job has ended.
        end_job: the job must be ended by us: it failed more often than it may.
    """

    verdict: Verdict
    timeout: str = ""
    end_job: bool = False


class Vigil:
    """Decides, from what the watches tell and the time, when the waiting is over. No IO, no clock of its own."""

    def __init__(self, job: Mapping[str, Any], limits: Limits, on_phase: Callable[[Verdict], None], now: float) -> None:
        """Start from the TrainJob as just read; times are seconds of any monotonic clock."""
        self.job, self._limits, self._on_phase = job, limits, on_phase
        self.pods: dict[str, Mapping[str, Any]] = {}
        self.former_pods: dict[str, Mapping[str, Any]] = {}
        self._verdict, self._told = judge(job), ""
        self._began, self._first_pod = now, math.inf
        self._deadlines = {
            name: now + limit.total_seconds() for name, limit in [("total", limits.total)] if limit is not None
        }
        self._set_deadlines(now)

    def observe_job(self, change: Change, now: float) -> Decision | None:
        """The TrainJob has changed."""
        if change.error:
            raise change.error
        if change.found is None or change.found["metadata"]["uid"] != self.job["metadata"]["uid"]:
            return None
        self.job = change.found
        self._review(now, gone=change.gone)
        self._tell()
        return Decision(self._verdict) if self._verdict.phase.finished else None

    def observe_pod(self, change: Change, now: float) -> Decision | None:
        """A pod of the TrainJob has changed. A feed that can't see pods is no reason to stop waiting."""
        pod = change.found
        if pod is None:
            return None
        uid = pod["metadata"]["uid"]
        if change.gone:
            self.pods.pop(uid, None)
            self.former_pods[uid] = pod  # a Job that gives up deletes its pod: this is all that is left of it
            return None
        self.pods[uid] = pod
        self._first_pod = min(self._first_pod, now)
        self._review(now)
        self._tell()
        limit = self._limits.max_restarts
        if limit is None or not restarts_in_place(pod) or pod["metadata"].get("deletionTimestamp"):
            return None
        over = [failure for failure in failures([pod]) if failure.count > limit]
        return Decision(_too_many(over[0], limit), end_job=True) if over else None

    def expire(self, now: float) -> Decision | None:
        """Time has passed: is a limit reached?"""
        if self._review(now):
            self._tell()
        reached = [name for name, deadline in self._deadlines.items() if deadline <= now]
        if not reached:
            return None
        return Decision(
            self._shown(), timeout=f"the limit on its {reached[0]} time is reached after {now - self._began:.0f} s"
        )

    def patience(self, now: float) -> float | None:
        """Seconds until [expire][] may have something to say; None means never."""
        moments = list(self._deadlines.values())
        pods_count = self._first_pod + _COUNTERS_SECONDS
        if now < pods_count < math.inf and not (self.job.get("status") or {}).get("jobsStatus"):
            moments.append(pods_count)
        return max(0.0, min(moments) - now) if moments else None

    @property
    def stuck(self) -> bool:
        """Whether the job has not got going, so that its events are worth a look."""
        return self._verdict.phase in (Phase.PENDING, Phase.STARTING, Phase.INITIALIZING)

    def explain(self, reasons: list[str]) -> None:
        """Tell why the job does not get going."""
        self._tell("; ".join(reasons))

    def _review(self, now: float, *, gone: bool = False) -> bool:
        """Judge anew; says whether the verdict is another one."""
        before = self._verdict
        verdict = judge(self.job, self.pods.values() if now - self._first_pod >= _COUNTERS_SECONDS else ())
        self._verdict = judge(None) if gone and not verdict.phase.finished else verdict
        self._set_deadlines(now)
        return self._verdict != before

    def _set_deadlines(self, now: float) -> None:
        phase = self._verdict.phase
        for name, phases, limit in (
            ("queued", (Phase.QUEUED, Phase.SUSPENDED), self._limits.queued),
            ("starting", (Phase.PENDING, Phase.INITIALIZING, Phase.STARTING), self._limits.starting),
        ):
            if phase not in phases:
                self._deadlines.pop(name, None)
            elif limit is not None:
                self._deadlines.setdefault(name, now + limit.total_seconds())

    def _shown(self, reason: str = "") -> Verdict:
        """The verdict with what a person wants to know most while it lasts: why it does not get on."""
        verdict = self._verdict
        if verdict.phase.finished:
            return verdict
        reason = reason or "; ".join(pending_reasons(self.pods.values())) or verdict.message
        return Verdict(verdict.phase, verdict.reason, reason, verdict.step)

    def _tell(self, reason: str = "") -> None:
        verdict = self._shown(reason)
        if str(verdict) != self._told:
            self._told = str(verdict)
            self._on_phase(verdict)


def _too_many(failure: ContainerFailure, limit: int) -> Verdict:
    message = (
        f"container {failure.container} of pod {failure.pod} failed {failure.count} time{'s' * (failure.count > 1)} "
        f"(last: {failure.reason}, exit code {failure.exit_code}); max_restarts is {limit}"
    )
    return Verdict(Phase.FAILED, RESTART_LIMIT_EXCEEDED, message, failure.step)
