"""Evidence about a TrainJob at its end, from which its outcome is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trainjob.status.log_reasons import ProcessFailure
from trainjob.status.pods import ContainerFailure, find_failures
from trainjob.status.progress import Progress
from trainjob.status.usage import Usage
from trainjob.status.verdict import Phase, Verdict
from trainjob.status.watchdog import RankEnd, WatchdogReport

Pod = Mapping[str, Any]


@dataclass(frozen=True)
class FinalPods:
    """Pods of a TrainJob at its end.

    Attributes:
        existing: pods that exist. If they could not be listed, the pods that were seen and not deleted.
        gone: last known states of the pods that were seen and do not exist any more.
        unknown_because: why pods may be missing here; empty if all are known.
    """

    existing: Sequence[Pod] = ()
    gone: Sequence[Pod] = ()
    unknown_because: str = ""

    @cached_property
    def all(self) -> Sequence[Pod]:
        """All pods in their last known state."""
        return [*self.gone, *self.existing]

    @cached_property
    def failures(self) -> Sequence[ContainerFailure]:
        """The failed containers, the earliest failure first."""
        return find_failures(self.all)

    def find_first_failure(self, verdict: Verdict) -> ContainerFailure | None:
        """Return the failure that ended a TrainJob; None if it is complete.

        It is the first one of the step that the verdict names, or of any step if it names none.
        """
        if verdict.phase is Phase.COMPLETE:
            return None
        return next((each for each in self.failures if not verdict.step or each.step == verdict.step), None)


@dataclass(frozen=True)
class Evidence:
    """Everything that was observed about a TrainJob at its end, except the TrainJob.

    Attributes:
        pods: its pods.
        events: recent Warning events about it and its objects, one line each: `REASON: MESSAGE`.
        jobset: its JobSet; None if it was not needed, or could not be read.
        log_tail: last lines of the container that failed first; see [trainjob.status.Outcome][].
        progress: last progress in its log.
        usage: usage of its pods; None if nobody counted it.
        watchdogs: last report of each node's watchdog, as far as its log was read.
        warnings: warnings of these watchdogs.
        killed: process of another container whose end caused the first failure; None if there is none.
        rank_ends: ends of ranks that these watchdogs have written.
    """

    pods: FinalPods = FinalPods()
    events: Sequence[str] = ()
    jobset: Mapping[str, Any] | None = None
    log_tail: Sequence[str] = ()
    progress: Progress | None = None
    usage: Usage | None = None
    watchdogs: Sequence[WatchdogReport] = ()
    warnings: Sequence[str] = ()
    killed: ProcessFailure | None = None
    rank_ends: Sequence[RankEnd] = ()
