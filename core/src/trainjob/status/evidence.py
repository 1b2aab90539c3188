"""Evidence about a TrainJob at its end, from which its outcome is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trainjob.status.pods import ContainerFailure, find_failures
from trainjob.status.progress import Progress
from trainjob.status.usage import Usage
from trainjob.status.verdict import Phase, Verdict


@dataclass(frozen=True)
class Evidence:
    """Everything that was observed about a TrainJob at its end, except the TrainJob.

    Attributes:
        pods: its pods in their last known state, including deleted ones.
        events: recent Warning events about it and its objects, one line each: `REASON: MESSAGE`.
        jobset: its JobSet; None if it was not needed, or could not be read.
        log_tail: last lines of the container that failed first; see [trainjob.status.Outcome][].
        progress: last progress in its log.
        usage: usage of its pods; None if nobody counted it.
    """

    pods: Sequence[Mapping[str, Any]] = ()
    events: Sequence[str] = ()
    jobset: Mapping[str, Any] | None = None
    log_tail: Sequence[str] = ()
    progress: Progress | None = None
    usage: Usage | None = None

    @cached_property
    def failures(self) -> Sequence[ContainerFailure]:
        """The failed containers, the earliest failure first."""
        return find_failures(self.pods)


def get_first_failure(verdict: Verdict, failures: Sequence[ContainerFailure]) -> ContainerFailure | None:
    """Return the failure that ended a TrainJob; None if it is complete.

    It is the first one of the step that the verdict names, or of any step if it names none.
    """
    if verdict.phase is Phase.COMPLETE:
        return None
    return next((failure for failure in failures if not verdict.step or failure.step == verdict.step), None)
