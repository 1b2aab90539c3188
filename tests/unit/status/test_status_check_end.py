"""Tests of the rule that distinguishes the end of a TrainJob from that of another JobSet."""

from __future__ import annotations

import pytest

from trainjob.status import Phase, Verdict, derive_verdict
from trainjob.status.failure_rules import EARLIER_JOBSET
from trainjob.status.verdict import check_end

POD = {"metadata": {"name": "tune-node-0-0-abcde"}}


def make_job(ended, condition="Complete", **spec):
    """Return a TrainJob that was created at 12:00:05 and has a condition since `ended`."""
    end = {"type": condition, "status": "True", "reason": "r", "message": "m", "lastTransitionTime": ended}
    metadata = {"name": "tune", "creationTimestamp": "2026-01-01T12:00:05Z"}
    return {"metadata": metadata, "spec": spec, "status": {"conditions": [end]}}


@pytest.mark.parametrize("condition", ["Complete", "Failed"])
def test_an_end_before_the_creation_is_that_of_another_jobset(condition):
    job = make_job("2026-01-01T12:00:04Z", condition)
    verdict = check_end(derive_verdict(job), job, [])
    assert (verdict.phase, verdict.reason) == (Phase.FAILED, EARLIER_JOBSET)
    assert "2026-01-01T12:00:04Z" in verdict.message


@pytest.mark.parametrize(
    ("job", "pods"),
    [
        (make_job("2026-01-01T12:00:05Z"), []),
        (make_job("2026-01-01T12:00:04Z"), [POD]),
        (make_job("2026-01-01T12:00:04Z", managedBy="kueue.x-k8s.io/multikueue"), []),
        (make_job(""), []),
        (make_job(None), []),
    ],
    ids=["the same second", "with pods: clocks differ", "another cluster's clock", "no time", "no text"],
)
def test_any_other_end_is_the_trainjobs_own(job, pods):
    verdict = derive_verdict(job)
    assert check_end(verdict, job, pods) == verdict


def test_a_failure_that_no_condition_reports_is_kept():
    """A wait ends a TrainJob that can no longer start, and a deleted one has no end."""
    job = make_job("2026-01-01T12:00:04Z", "Suspended")
    for verdict in (Verdict(Phase.FAILED, "ErrImagePull"), derive_verdict(None)):
        assert check_end(verdict, job, []) == verdict
