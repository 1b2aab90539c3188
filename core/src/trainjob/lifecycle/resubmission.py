"""Decision whether a step submits another attempt after its TrainJob has ended; no I/O."""

from __future__ import annotations

from dataclasses import dataclass

from trainjob.lifecycle.identity import JobReference
from trainjob.status import Category, Outcome, Phase


@dataclass(frozen=True)
class Resubmission:
    """Decision to submit another attempt of a run key, without failing the step.

    Attributes:
        notice: log line that says what happened to the last TrainJob.
        interruptions: argument of `trainjob.lifecycle.submit` for the next attempt.
    """

    notice: str
    interruptions: int


def plan_resubmission(reference: JobReference, outcome: Outcome, interruption_retries: int) -> Resubmission | None:
    """Decide whether to submit another attempt of a step whose TrainJob has ended.

    An interruption by the infrastructure, such as an eviction, starts another attempt until the budget is used up. A
    failure of the code ends the step.

    The deletion of an adopted TrainJob also starts another attempt, and does not use up the budget. An earlier try may
    delete its TrainJob late: a launcher whose node was lost and came back, or a deferred task that is cleared. If this
    caller created the TrainJob itself, another user or process deleted it, and the step has failed.

    The budget counts the interruptions since a try of the step created a TrainJob. Each TrainJob has the number of
    interruptions before it as an annotation, so the count survives the loss of the process that waits. A new try that
    creates its own TrainJob starts with 0.

    Args:
        reference: the TrainJob that has ended.
        outcome: its outcome.
        interruption_retries: the budget; 0 starts no attempt after an interruption.

    Returns:
        None if the outcome is the result of the step.
    """
    if outcome.phase is Phase.DELETED and reference.adopted:
        notice = f"TrainJob {reference} was deleted after it was adopted; starting another attempt"
        return Resubmission(notice, reference.interruptions)
    if outcome.category is not Category.INFRASTRUCTURE or reference.interruptions >= interruption_retries:
        return None
    interruptions = reference.interruptions + 1
    reason = next(iter((outcome.message or outcome.reason).splitlines()), "")
    notice = (
        f"TrainJob {reference} was interrupted by the infrastructure ({reason}); "
        f"starting another attempt, interruption {interruptions} of {interruption_retries}"
    )
    return Resubmission(notice, interruptions)
