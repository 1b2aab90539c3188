"""Tests of the loop over the attempts of a step."""

from __future__ import annotations

import pytest

from trainjob.errors import ClusterError
from trainjob.lifecycle import JobReference, Resubmission, run_attempts
from trainjob.status import Category, Outcome, Phase

INTERRUPTED = (Phase.FAILED, Category.INFRASTRUCTURE)
FAILED = (Phase.FAILED, Category.APPLICATION)
COMPLETE = (Phase.COMPLETE, Category.SUCCEEDED)


class Step:
    """A step whose attempts end as planned; it records the calls."""

    def __init__(self, *ends):
        self.ends, self.calls = list(ends), []

    def submit(self, earlier):
        number = sum(call[0] == "submit" for call in self.calls) + 1
        self.calls.append(("submit", earlier))
        earlier = earlier or Resubmission()
        counts = {"interruptions": earlier.interruptions, "failures": earlier.failures}
        return JobReference("train", "ml", f"uid-{number}", number, **counts)

    def follow(self, reference):
        self.calls.append(("follow", reference.uid))
        return outcome(*self.ends.pop(0))

    def pause(self, resubmission):
        self.calls.append(("pause", resubmission.pause))

    def run(self, **options):
        options = {"interruption_retries": 1, "attempts": 2, **options}
        return run_attempts(self.submit, self.follow, self.pause, **options)


def outcome(phase, category):
    return Outcome("train", "ml", "uid", phase, category, "Reason", "message")


def test_attempts_follow_each_other_until_one_is_the_result():
    step = Step(INTERRUPTED, FAILED, COMPLETE)
    reference, result = step.run()
    assert (reference.uid, result.phase) == ("uid-3", Phase.COMPLETE)
    earlier = [call[1] and (call[1].interruptions, call[1].failures) for call in step.calls if call[0] == "submit"]
    assert earlier == [None, (1, 0), (1, 1)]
    kinds = ["submit", "follow", "pause"]
    assert [kind for kind, _ in step.calls] == [*kinds, *kinds, "submit", "follow"]
    assert [value for kind, value in step.calls if kind == "pause"] == [0.0, 10.0]


def test_a_failure_beyond_the_budget_is_the_result():
    reference, result = Step(FAILED, FAILED).run()
    assert (reference.uid, result.phase) == ("uid-2", Phase.FAILED)


def test_a_trainjob_that_another_process_has_followed_is_the_first_attempt():
    step, ended = Step(COMPLETE), JobReference("train", "ml", "uid-0", 1)
    assert step.run(ended=(ended, outcome(*COMPLETE)))[0] is ended
    assert step.calls == []
    assert step.run(ended=(ended, outcome(*INTERRUPTED)))[0].uid == "uid-1"
    assert [kind for kind, _ in step.calls] == ["pause", "submit", "follow"]


@pytest.mark.parametrize("kind", ["submit", "follow", "pause"])
def test_an_error_of_a_function_ends_the_loop(kind):
    step = Step(INTERRUPTED, COMPLETE)

    def fail(_):
        raise ClusterError("away")

    setattr(step, kind, fail)
    with pytest.raises(ClusterError, match="away"):
        step.run()
