"""What to do for a run key, given the TrainJobs that carry it; pure decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainjob.manifest import labels
from trainjob.status import Phase, judge
from trainjob.status.left import is_left_at_work
from trainjob.status.reading import number, table, text


@dataclass(frozen=True)
class Plan:
    """What to do next for a run key, given its TrainJobs.

    Attributes:
        adopt: take this one over.
        cancel: these are in the way: what they do is no longer wanted, or is done by another.
        going: these are being deleted: wait until they are gone.
        attempt: the number of the next attempt.
    """

    adopt: Mapping[str, Any] | None
    cancel: Sequence[Mapping[str, Any]]
    going: Sequence[Mapping[str, Any]]
    attempt: int


def plan(jobs: Sequence[Mapping[str, Any]], wanted: str, since: str = "", renewal: str = "") -> Plan:
    """Decide from the TrainJobs of one run key. Pure; the order of `jobs` does not matter.

    One that is asked for with the same spec is taken over: while it has not finished, as a crash may have been before
    this try; and when it has succeeded, unless the work is to be done again.

    Args:
        jobs: every TrainJob that carries the run key.
        wanted: the spec hash of what is asked for now.
        since: RFC 3339 time in UTC; a succeeded one that is older is not taken over.
        renewal: a succeeded one of another renewal is not taken over.
    """
    ordered = sorted(jobs, key=attempt_of)
    going = [job for job in ordered if table(job, "metadata").get("deletionTimestamp")]
    active = [job for job in ordered if job not in going and not judge(job).phase.finished]
    left = [job for job in ordered if job not in going and is_left_at_work(job)]
    same = [job for job in active if _hash(job) == wanted]
    if same:
        chosen = same[0]
        return Plan(chosen, [job for job in active if job is not chosen] + left, going, attempt_of(chosen))
    recent = [job for job in ordered if text(job, "metadata", "creationTimestamp") >= since]
    same = [job for job in recent if labels.annotation(job, labels.RENEWAL) == renewal and _hash(job) == wanted]
    succeeded = [job for job in same if judge(job).phase is Phase.COMPLETE]
    if succeeded:
        return Plan(succeeded[-1], active + left, going, attempt_of(succeeded[-1]))
    return Plan(None, active + left, going, max(map(attempt_of, ordered), default=0) + 1)


def attempt_of(job: Mapping[str, Any]) -> int:
    """The number of a TrainJob among those of its run key; 0 when it is not ours."""
    return max(number(job, "metadata", "labels", labels.ATTEMPT), 0)


def _hash(job: Mapping[str, Any]) -> str:
    return labels.annotation(job, labels.SPEC_HASH)
