"""Rules that decide whether a sweep may delete a TrainJob; no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from trainjob.errors import InvalidSpec
from trainjob.manifest import labels
from trainjob.manifest.durations import duration, duration_text
from trainjob.status import Phase, conclude, judge
from trainjob.status.left import left_as_failed
from trainjob.status.reading import text


class SweepAction(Enum):
    """Action of a sweep on a TrainJob, as far as it follows from the TrainJob alone."""

    STAYS = "stays"
    GOES_UNLESS_WANTED = "goes unless wanted"
    """It has been finished for its lifetime: delete it unless its caller is known to be running."""
    GOES_IF_UNWANTED = "goes if unwanted"
    """It has not finished: delete or suspend it if its caller is known to have ended."""


@dataclass(frozen=True)
class Decided:
    """Action of a sweep on one TrainJob, and its reason."""

    fate: SweepAction
    reason: str = ""


@dataclass(frozen=True)
class Lifetimes:
    """Times for which TrainJobs are retained.

    Attributes:
        finished_for: time after the end of a finished TrainJob that has no lifetime of its own; None means no limit.
        at_work_for: time after the creation or adoption of an unfinished TrainJob whose caller has ended. Engines end
            most of these themselves within seconds.
    """

    finished_for: timedelta | None = None
    at_work_for: timedelta = timedelta(minutes=5)


def decide(job: Mapping[str, Any], lifetimes: Lifetimes, now: datetime) -> Decided:
    """Return the action of a sweep on a TrainJob with our labels; no I/O.

    Args:
        job: the TrainJob as the API server returns it.
        lifetimes: times for which TrainJobs are retained.
        now: the current time, with a time zone.
    """
    verdict = judge(job)
    phase, newest_use = verdict.phase, _moment(labels.adopted_at(job) or job["metadata"].get("creationTimestamp"))
    if phase is Phase.DELETED or newest_use is None:
        return Decided(SweepAction.STAYS)
    if not phase.finished:
        return _of_one_at_work(job, now - newest_use, lifetimes)
    ended = _moment(conclude(job, verdict).finished or text(left_as_failed(job), "at"))
    try:
        lifetime = _lifetime(job, phase, lifetimes)
    except InvalidSpec as error:
        return Decided(SweepAction.STAYS, str(error))
    # The caller that adopted a finished TrainJob uses it, so its lifetime starts at the adoption.
    if ended is None or lifetime is None or now - max(ended, newest_use) < lifetime:
        return Decided(SweepAction.STAYS)
    return Decided(SweepAction.GOES_UNLESS_WANTED, f"it has been {phase.value} for more than {duration_text(lifetime)}")


def may_hold_a_model(job: Mapping[str, Any]) -> bool:
    """Return whether a TrainJob is complete and not marked as exported.

    Its model may then be on its own claim, which is deleted with it. A failed TrainJob has no final model.
    """
    return judge(job).phase is Phase.COMPLETE and not labels.annotation(job, labels.EXPORTED)


def _of_one_at_work(job: Mapping[str, Any], age: timedelta, lifetimes: Lifetimes) -> Decided:
    on_kill = labels.annotation(job, labels.ON_KILL)
    as_wanted = on_kill == "keep" or (on_kill == "suspend" and job["spec"].get("suspend"))
    if as_wanted or age < lifetimes.at_work_for:
        return Decided(SweepAction.STAYS)
    return Decided(SweepAction.GOES_IF_UNWANTED, "nobody waits for it any more")


def _lifetime(job: Mapping[str, Any], phase: Phase, lifetimes: Lifetimes) -> timedelta | None:
    name = labels.TTL_AFTER_SUCCESS if phase is Phase.COMPLETE else labels.TTL_AFTER_FAILURE
    own = labels.annotation(job, name)
    return duration(own, f"its annotation {name}") if own else lifetimes.finished_for


def _moment(written: str | None) -> datetime | None:
    """Return a time from its ISO 8601 text; None if it has no time zone or is invalid."""
    try:
        moment = datetime.fromisoformat((written or "").replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment if moment.tzinfo else None
