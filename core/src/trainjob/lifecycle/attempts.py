"""Attempts of a step, until the outcome of one of them is the step's result."""

from __future__ import annotations

from collections.abc import Callable

from trainjob.lifecycle.identity import JobReference
from trainjob.lifecycle.resubmission import Resubmission, plan_resubmission
from trainjob.status import Outcome


def run_attempts(
    submit: Callable[[Resubmission | None], JobReference],
    follow: Callable[[JobReference], Outcome],
    pause: Callable[[Resubmission], None],
    *,
    interruption_retries: int,
    attempts: int = 1,
    ended: tuple[JobReference, Outcome] | None = None,
) -> tuple[JobReference, Outcome]:
    """Submit TrainJobs and follow each to its end, until no further attempt is planned.

    This is the one loop of the workflow engines and of `trainjob run`. What they do differently is in the functions.
    Their errors end the loop.

    Args:
        submit: submits or adopts the TrainJob of an attempt ([trainjob.lifecycle.submit][]). It is called with what
            follows from the attempt before; None for the first one.
        follow: waits until the TrainJob has ended ([trainjob.lifecycle.wait][]), and returns its outcome.
        pause: reports that another attempt follows, and waits for the time that is planned before it.
        interruption_retries: see [plan_resubmission][].
        attempts: see [plan_resubmission][].
        ended: the first TrainJob and its outcome, if another process has followed it; None submits it here.

    Returns:
        The last TrainJob and its outcome, which may be a failure.
    """

    def attempt(earlier: Resubmission | None) -> tuple[JobReference, Outcome]:
        reference = submit(earlier)
        return reference, follow(reference)

    ended = ended or attempt(None)
    while resubmission := plan_resubmission(*ended, interruption_retries, attempts):
        pause(resubmission)
        ended = attempt(resubmission)
    return ended
