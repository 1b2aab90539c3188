"""Rules that decide whether a sweep may delete a TrainJob; no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from trainjob.errors import InvalidSpec
from trainjob.manifest import labels
from trainjob.spec.durations import format_duration, parse_duration
from trainjob.status import Phase, build_outcome, derive_verdict
from trainjob.status.failed_mark import read_failed_mark
from trainjob.status.nested_fields import get_str

_CODE_ACTIVE_FOR = timedelta(hours=1)  # no workflow engine knows a TrainJob that stores code


class SweepAction(Enum):
    """Action of a sweep on a TrainJob, as far as it follows from the TrainJob alone."""

    RETAIN = "retain"
    DELETE_UNLESS_CALLER_RUNS = "delete unless caller runs"
    """Its time to live after its end is over: delete it unless its caller is known to be running."""
    END_IF_CALLER_ENDED = "end if caller ended"
    """It has not finished: delete or suspend it if its caller is known to have ended."""


@dataclass(frozen=True)
class SweepDecision:
    """Action of a sweep on one TrainJob, and its reason."""

    action: SweepAction
    reason: str = ""


@dataclass(frozen=True)
class Lifetimes:
    """Times for which TrainJobs are retained.

    Attributes:
        finished_for: time to live of a finished TrainJob, from its end, if the TrainJob has no annotation with its own
            time to live; None means no limit.
        active_for: time after the creation or adoption of an unfinished TrainJob whose caller has ended. Engines end
            most of these themselves within seconds.
    """

    finished_for: timedelta | None = None
    active_for: timedelta = timedelta(minutes=5)


def decide_action(job: Mapping[str, Any], lifetimes: Lifetimes, now: datetime) -> SweepDecision:
    """Return the action of a sweep on a TrainJob with our labels; no I/O.

    Args:
        job: the TrainJob as the API server returns it.
        lifetimes: times for which TrainJobs are retained.
        now: the current time, with a time zone.
    """
    verdict = derive_verdict(job)
    phase = verdict.phase
    last_use = _parse_time(labels.get_adoption_time(job) or job["metadata"].get("creationTimestamp"))
    if phase is Phase.DELETED or last_use is None:
        return SweepDecision(SweepAction.RETAIN)
    if not phase.finished:
        return _decide_unfinished(job, now - last_use, lifetimes)
    ended = _parse_time(build_outcome(job, verdict).finished or get_str(read_failed_mark(job), "at"))
    try:
        lifetime = _lifetime(job, phase, lifetimes)
    except InvalidSpec as error:
        return SweepDecision(SweepAction.RETAIN, str(error))
    # The caller that adopted a finished TrainJob uses it, so its lifetime starts at the adoption.
    if ended is None or lifetime is None or now - max(ended, last_use) < lifetime:
        return SweepDecision(SweepAction.RETAIN)
    return SweepDecision(
        SweepAction.DELETE_UNLESS_CALLER_RUNS, f"it has been {phase.value} for more than {format_duration(lifetime)}"
    )


def may_hold_a_model(job: Mapping[str, Any]) -> bool:
    """Return whether a TrainJob is complete and not marked as exported.

    Its model may then be on its own claim, which is deleted with it. A failed TrainJob has no final model.
    """
    return derive_verdict(job).phase is Phase.COMPLETE and not labels.get_annotation(job, labels.EXPORTED)


def _decide_unfinished(job: Mapping[str, Any], age: timedelta, lifetimes: Lifetimes) -> SweepDecision:
    on_kill = labels.get_annotation(job, labels.ON_KILL)
    is_as_requested = on_kill == "keep" or (on_kill == "suspend" and job["spec"].get("suspend"))
    if is_as_requested or age < lifetimes.active_for:
        return SweepDecision(SweepAction.RETAIN)
    if get_str(job, "metadata", "labels", labels.ENGINE) == labels.CODE_ENGINE:
        if age < _CODE_ACTIVE_FOR:
            return SweepDecision(SweepAction.RETAIN)
        reason = f"it stores code, and no submission has adopted it for {format_duration(_CODE_ACTIVE_FOR)}"
        return SweepDecision(SweepAction.DELETE_UNLESS_CALLER_RUNS, reason)
    return SweepDecision(SweepAction.END_IF_CALLER_ENDED, "no process waits for it any more")


def _lifetime(job: Mapping[str, Any], phase: Phase, lifetimes: Lifetimes) -> timedelta | None:
    name = labels.TTL_AFTER_SUCCESS if phase is Phase.COMPLETE else labels.TTL_AFTER_FAILURE
    own = labels.get_annotation(job, name)
    return parse_duration(own, f"its annotation {name}") if own else lifetimes.finished_for


def _parse_time(value: str | None) -> datetime | None:
    """Return a time from its ISO 8601 text; None if it has no time zone or is invalid."""
    try:
        moment = datetime.fromisoformat((value or "").replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment if moment.tzinfo else None
