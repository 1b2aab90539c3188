"""Tests of the limits on the queue and the start, which count from the cluster's times in each process that waits."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from trainjob.client import ObjectEvent
from trainjob.lifecycle import Limits
from trainjob.lifecycle.wait_policy import WaitPolicy
from trainjob.manifest import labels

EPOCH = datetime(2026, 1, 1, tzinfo=timezone.utc)  # time 0 of the policies' clock
LIMITS = Limits(queued=timedelta(hours=2), starting=timedelta(hours=1))
HOUR, DAY = 3600.0, 86400.0


def at(seconds):
    return (EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def job(*, created=0.0, suspend=False, suspended=None, ready=0, limit_reached=None):
    """Return a TrainJob; `suspended` is status and time of the condition."""
    condition = suspended and {"type": "Suspended", "status": suspended[0], "lastTransitionTime": at(suspended[1])}
    annotations = {} if limit_reached is None else {labels.LIMIT_REACHED: at(limit_reached)}
    counters = {"name": "node", "active": 1, "ready": ready}
    return {
        "metadata": {
            "name": "j",
            "namespace": "n",
            "uid": "u",
            "creationTimestamp": at(created),
            "annotations": annotations,
        },
        "spec": {"suspend": suspend},
        "status": {"conditions": [condition] if condition else [], "jobsStatus": [counters]},
    }


def pod(created, *, ready=False, uid="p"):
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {
        "metadata": {"name": uid, "uid": uid, "creationTimestamp": at(created)},
        "status": {"phase": "Pending", "conditions": conditions},
    }


def begin(found, now, limits=LIMITS):
    """Return the policy of a process that begins to wait at a time."""
    return WaitPolicy(found, limits, lambda _: None, now, clock_offset=EPOCH.timestamp())


def find_deadline(policy, now):
    return now + policy.seconds_until_evaluation(now)


QUEUED = job(suspend=True, suspended=("True", 0))


def test_processes_that_follow_one_another_share_one_limit():
    for now in (0.0, 0.5 * HOUR, 1.9 * HOUR):
        assert find_deadline(begin(QUEUED, now), now) == 2 * HOUR
    assert "queued time is reached after 7200 s" in begin(QUEUED, 1.9 * HOUR).evaluate(2 * HOUR).timeout


def test_a_limit_that_was_reached_before_leaves_a_process_half_a_minute():
    assert find_deadline(begin(QUEUED, 5 * HOUR), 5 * HOUR) == 5 * HOUR + 30
    short = Limits(queued=timedelta(seconds=2))
    assert find_deadline(begin(QUEUED, 5 * HOUR, short), 5 * HOUR) == 5 * HOUR + 2


@pytest.mark.parametrize(
    ("found", "now", "deadline"),
    [
        (job(suspend=True), HOUR, 2 * HOUR),  # the Trainer has not written the condition yet
        (job(suspend=True, suspended=("True", DAY)), DAY + HOUR, DAY + 2 * HOUR),  # preempted by Kueue after a day
        (job(suspended=("True", 0)), DAY, DAY + 2 * HOUR),  # an adoption has just resumed it
        (job(suspend=True, suspended=("False", 0)), DAY, DAY + 2 * HOUR),  # a user has just suspended it
        (job(suspend=True, suspended=("True", 0), limit_reached=DAY), DAY + HOUR, DAY + 2 * HOUR),  # of an earlier try
        (job(), 0.5 * HOUR, HOUR),
        (job(suspended=("False", DAY)), DAY + 0.5 * HOUR, DAY + HOUR),  # the end of the queue
        (job(limit_reached=DAY), DAY + 0.5 * HOUR, DAY + HOUR),
        (job(created=DAY), 0.0, HOUR),  # a time in the future counts as now
    ],
)
def test_a_limit_counts_from_the_time_of_the_cluster(found, now, deadline):
    assert find_deadline(begin(found, now), now) == deadline


def test_the_start_of_a_pod_that_replaces_one_is_no_reason_to_end_a_trainjob_that_ran_for_days():
    policy = begin(job(), DAY)
    policy.observe_pod(ObjectEvent(pod(1.0, ready=True, uid="other")), DAY)
    policy.observe_pod(ObjectEvent(pod(DAY - 60)), DAY)
    assert policy.evaluate(DAY + HOUR - 61) is None
    assert "starting time is reached after 3600 s" in policy.evaluate(DAY + HOUR - 60).timeout


def test_a_pod_that_is_created_during_the_wait_does_not_extend_the_limit():
    policy = begin(job(), 10.0)
    policy.observe_pod(ObjectEvent(pod(0.9 * HOUR)), 0.9 * HOUR)
    assert "starting" in policy.evaluate(HOUR).timeout


def test_a_limit_that_starts_again_during_the_wait_counts_from_then():
    policy = begin(job(suspended=("False", 0)), 0.0)
    policy.observe_job(ObjectEvent(job(suspended=("False", 0), ready=1)), 60.0)
    policy.observe_job(ObjectEvent(job(suspended=("False", 0))), DAY)  # a node was drained
    assert policy.evaluate(DAY + HOUR - 1) is None
    policy.observe_job(ObjectEvent(job(suspend=True, suspended=("True", DAY + 60))), DAY + 90)  # preempted
    assert find_deadline(policy, DAY + 90) == DAY + 60 + 2 * HOUR
    policy.observe_job(ObjectEvent(job(suspended=("False", 2 * DAY))), 2 * DAY + 30)  # admitted, and observed later
    assert find_deadline(policy, 2 * DAY + 30) == 2 * DAY + HOUR
