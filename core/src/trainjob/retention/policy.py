"""Whether a TrainJob may go: pure decisions of a sweep."""

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
    """What a sweep does with a TrainJob, as far as it can be told from the TrainJob alone."""

    STAYS = "stays"
    GOES_UNLESS_WANTED = "goes unless wanted"
    """Its time is over: it goes, unless who asked for it is known to be at work still."""
    GOES_IF_UNWANTED = "goes if unwanted"
    """It is at work: it goes if who asked for it is known to have ended."""


@dataclass(frozen=True)
class Decided:
    """What is to become of a TrainJob, and why."""

    fate: SweepAction
    reason: str = ""


@dataclass(frozen=True)
class Lifetimes:
    """How long TrainJobs stay.

    Attributes:
        finished_for: those that have ended and say nothing of it themselves; None means for ever.
        at_work_for: those at work whose asker has ended, from their creation or adoption on: engines end most of these
            themselves, within seconds.
    """

    finished_for: timedelta | None = None
    at_work_for: timedelta = timedelta(minutes=5)


def decide(job: Mapping[str, Any], lifetimes: Lifetimes, now: datetime) -> Decided:
    """Say what is to become of a TrainJob of ours. Pure.

    Args:
        job: as the API gives it.
        lifetimes: how long it may stay.
        now: the time, with a time zone.
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
    # One that was taken over is in use again: its task goes on from its end.
    if ended is None or lifetime is None or now - max(ended, newest_use) < lifetime:
        return Decided(SweepAction.STAYS)
    return Decided(SweepAction.GOES_UNLESS_WANTED, f"it has been {phase.value} for more than {duration_text(lifetime)}")


def may_hold_a_model(job: Mapping[str, Any]) -> bool:
    """Whether its model may be on a claim of its own, which goes with it, and nothing tells that it was exported.

    Of one that has failed there is no final model.
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
    """A time as the API or we write it; None when there is none to be read."""
    try:
        moment = datetime.fromisoformat((written or "").replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment if moment.tzinfo else None
