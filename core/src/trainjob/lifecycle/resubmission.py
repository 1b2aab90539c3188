"""Decision whether a step submits another attempt after its TrainJob has ended; no I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainjob.lifecycle.identity import JobReference
from trainjob.status import Category, Outcome, Phase
from trainjob.status.failure_rules import NO_RESERVATION, RULES

_FIRST_PAUSE, _MAX_PAUSE = 10.0, 300.0  # seconds
_MAX_HUNG_ON = 50  # names in an annotation


@dataclass(frozen=True)
class Resubmission:
    """Decision to submit another attempt of a run key, without failing the step.

    Attributes:
        notice: log line that says what happened to the last TrainJob.
        interruptions: number of attempts that the infrastructure interrupted before the next one.
        failures: number of attempts that failed before the next one, in this try of the step.
        pause: seconds to wait before the submission.
        num_nodes: number of nodes of the next attempt, if the request has a range of them; None means the maximum.
        hung_on: names of the cluster's nodes on which earlier attempts hung, the last ones first.
    """

    notice: str = ""
    interruptions: int = 0
    failures: int = 0
    pause: float = 0.0
    num_nodes: int | None = None
    hung_on: tuple[str, ...] = ()


def plan_resubmission(
    reference: JobReference, outcome: Outcome, interruption_retries: int, attempts: int = 1
) -> Resubmission | None:
    """Decide whether to submit another attempt of a step whose TrainJob has ended.

    An interruption by the infrastructure, such as an eviction, starts another attempt until the budget is used up. So
    does the end of a training that hung, if its watchdog has the action `restart`.

    A failure starts another attempt until `attempts` TrainJobs have failed. The first of these attempts starts after
    10 s, and each further one after twice the time, at most 300 s. No attempt follows a failure that ends the retries
    of a workflow engine, too: an image, Secret or other object is missing or wrong ([trainjob.errors.NeverStarted][]).

    An attempt that got no nodes is followed by one that requests fewer, if the request has a range of nodes. This does
    not use up a budget. Any other attempt requests the maximum again.

    The deletion of an adopted TrainJob also starts another attempt, and does not use up a budget. An earlier try may
    delete its TrainJob late: a launcher whose node was lost and came back, or a deferred task that is cleared. If this
    caller created the TrainJob itself, another user or process deleted it, and the step has failed.

    The budgets count the interruptions and failures since a try of the step created a TrainJob. Each TrainJob has the
    numbers before it as annotations, so the counts survive the loss of the process that waits. A new try that creates
    its own TrainJob starts with 0.

    Args:
        reference: the TrainJob that has ended.
        outcome: its outcome.
        interruption_retries: the budget for interruptions; 0 starts no attempt after an interruption.
        attempts: number of TrainJobs of a try that may fail; with 1, a failure ends the step.

    Returns:
        None if the outcome is the result of the step.
    """
    planned = _plan(reference, outcome, interruption_retries, attempts)
    hung_on = tuple(dict.fromkeys((*outcome.hung_on, *reference.hung_on)))[:_MAX_HUNG_ON]
    return replace(planned, hung_on=hung_on) if planned else None


def _plan(reference: JobReference, outcome: Outcome, interruption_retries: int, attempts: int) -> Resubmission | None:
    """Return the next attempt without the nodes on which others hung."""
    interruptions, failures = reference.interruptions, reference.failures
    if outcome.phase is Phase.DELETED and reference.adopted:
        notice = f"TrainJob {reference} was deleted after it was adopted; starting another attempt"
        return Resubmission(notice, interruptions, failures)
    if outcome.reason == NO_RESERVATION and reference.fewer_nodes:
        notice = f"TrainJob {reference}: {outcome.message}; the next attempt requests {reference.fewer_nodes} nodes"
        return Resubmission(notice, interruptions, failures, num_nodes=reference.fewer_nodes)
    reason = next(iter(outcome.cause.splitlines()), "")
    if outcome.is_interruption:
        if interruptions >= interruption_retries:
            return None
        event = f"TrainJob {reference} was interrupted by the infrastructure ({reason})"
        if outcome.category is Category.HUNG:
            event = f"TrainJob {reference} was ended by its watchdog ({reason})"
        notice = f"{event}; starting another attempt, interruption {interruptions + 1} of {interruption_retries}"
        return Resubmission(notice, interruptions + 1, failures)
    if outcome.phase is not Phase.FAILED or not _may_help(outcome) or failures + 1 >= attempts:
        return None
    pause = min(_FIRST_PAUSE * 2.0 ** min(failures, 10), _MAX_PAUSE)
    notice = (
        f"TrainJob {reference} failed ({reason or outcome.category.value}); "
        f"attempt {failures + 2} of {attempts} starts in {pause:.0f} s"
    )
    return Resubmission(notice, interruptions, failures + 1, pause)


def _may_help(outcome: Outcome) -> bool:
    """Return whether another attempt may help, as for the retries of a workflow engine."""
    rule = RULES[outcome.category]
    return rule.error.was_tried or rule.retryable
