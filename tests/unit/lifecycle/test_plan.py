"""Tests of the decision to adopt or create, for every set of TrainJobs that a run key can have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob.lifecycle import RunKey
from trainjob.lifecycle.plan import plan_submission
from trainjob.manifest import labels
from trainjob.status.failed_mark import FAILED_MARK, format_failed_mark

SPEC_HASH, OTHER = "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"
TRAINING = "cccccccccccccccc"


def job(attempt, state, spec=SPEC_HASH, training="", renewal="", *, delivered=False, created="2026-01-01T00:00:10Z"):
    """Return a TrainJob in a state; one of an earlier version has no training hash.

    The states are `active`, `complete`, `failed`, `terminating` (it is being deleted), and two states of a TrainJob
    that is marked as failed: `kept` (it still runs) and `suspended`.
    """
    metadata = {
        "name": f"tune-{attempt}-{state}-{spec[:1]}",
        "uid": f"{attempt}{state}{spec}",
        "namespace": "ml",
        "labels": {labels.ATTEMPT: str(attempt)},
        "annotations": {labels.SPEC_HASH: spec, labels.TRAINING_HASH: training, labels.RENEWAL: renewal},
        "creationTimestamp": created,
    }
    if delivered:
        metadata["annotations"][labels.DELIVERED] = "2026-01-01T00:00:00Z"
    if state == "terminating":
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if state in ("kept", "suspended"):
        metadata["annotations"][FAILED_MARK] = format_failed_mark("RestartLimitExceeded", "it failed", "node", "")
    conditions = {"complete": "Complete", "failed": "Failed"}
    return {
        "metadata": metadata,
        "spec": {"suspend": state == "suspended"},
        "status": {"conditions": [{"type": conditions[state], "status": "True"}] if state in conditions else []},
    }


def test_the_first_attempt_is_number_1():
    plan = plan_submission([], SPEC_HASH)
    assert (plan.adopt, plan.attempt, plan.delete, plan.terminating) == (None, 1, [], [])


def test_a_running_job_is_adopted():
    assert plan_submission([job(1, "failed"), job(2, "active")], SPEC_HASH).adopt == job(2, "active")


def test_a_running_job_of_another_request_is_kept_if_the_caller_says_so():
    other = job(1, "active", OTHER)
    assert plan_submission([other], SPEC_HASH).delete == [other]
    plan = plan_submission([other], SPEC_HASH, is_kept=lambda found: found is other)
    assert (plan.adopt, plan.delete, plan.attempt) == (other, [], 1)
    assert "runs already, and is not replaced: its request has changed only in fields" in plan.notice
    same = job(2, "active")
    plan = plan_submission([other, same], SPEC_HASH, is_kept=lambda _: True)
    assert (plan.adopt, plan.delete, plan.notice) == (same, [other], "")


def test_a_succeeded_job_is_adopted_if_its_spec_is_the_same():
    assert plan_submission([job(1, "complete")], SPEC_HASH).adopt == job(1, "complete")
    assert plan_submission([job(1, "complete", OTHER)], SPEC_HASH).adopt is None


def test_a_job_that_succeeded_in_an_earlier_run_of_the_same_name_is_not_adopted():
    earlier = job(1, "complete")
    earlier["metadata"]["creationTimestamp"] = "2026-01-01T00:00:10Z"
    assert plan_submission([earlier], SPEC_HASH, "2026-01-01T00:00:10Z").adopt == earlier
    later = plan_submission([earlier], SPEC_HASH, "2026-01-01T00:00:11Z")
    assert (later.adopt, later.attempt) == (None, 2)


def test_a_job_that_succeeded_under_another_renewal_is_not_adopted():
    before, after = job(1, "complete"), job(2, "complete")
    after["metadata"]["annotations"][labels.RENEWAL] = "3"
    assert plan_submission([before], SPEC_HASH, renewal="3").adopt is None
    assert plan_submission([before, after], SPEC_HASH, renewal="3").adopt == after
    assert plan_submission([before, after], SPEC_HASH, renewal="4").attempt == 3
    assert plan_submission([job(1, "active")], SPEC_HASH, renewal="3").adopt == job(1, "active")


@pytest.mark.parametrize(
    ("jobs", "adopted"),
    [
        ([job(1, "complete", training=TRAINING, renewal="1")], 1),
        ([job(1, "complete", OTHER, TRAINING)], 1),
        ([job(1, "complete", OTHER, TRAINING, "1")], 1),
        ([job(1, "complete", training=TRAINING, renewal="1", delivered=True)], None),
        ([job(1, "complete", training=TRAINING, delivered=True)], 1),
        ([job(1, "complete", OTHER, TRAINING, delivered=True)], None),
        ([job(1, "complete", OTHER, OTHER)], None),
        ([job(1, "complete", OTHER)], None),
        ([job(1, "failed", OTHER, TRAINING)], None),
        ([job(1, "active", OTHER, TRAINING)], None),
        ([job(1, "terminating", OTHER, TRAINING)], None),
        ([job(1, "complete", OTHER, TRAINING, created="2026-01-01T00:00:09Z")], None),
        ([job(1, "complete", OTHER, TRAINING), job(2, "complete", OTHER, OTHER, delivered=True)], None),
        ([job(1, "complete", OTHER, TRAINING), job(2, "failed", OTHER, OTHER)], None),
        ([job(1, "failed", OTHER, OTHER), job(2, "complete", OTHER, TRAINING)], 2),
    ],
    ids=[
        "another renewal",
        "another request",
        "another renewal and request",
        "delivered, another renewal",
        "delivered, a retry",
        "delivered, another request",
        "another training",
        "of an earlier version",
        "failed",
        "active",
        "being deleted",
        "of an earlier run of the same name",
        "a later one was delivered",
        "a later one has failed",
        "an earlier one has failed",
    ],
)
def test_a_succeeded_job_that_was_not_delivered_is_adopted_if_the_training_is_the_same(jobs, adopted):
    plan = plan_submission(jobs, SPEC_HASH, "2026-01-01T00:00:10Z", training_hash=TRAINING)
    assert plan.adopt == (jobs[adopted - 1] if adopted else None)
    assert plan.attempt == (adopted or len(jobs) + 1)
    without = plan_submission(jobs, SPEC_HASH, "2026-01-01T00:00:10Z")
    assert bool(plan.notice) == (plan.adopt != without.adopt)


def test_the_notice_names_what_has_changed_and_how_to_repeat_the_work():
    earlier = job(1, "complete", OTHER, TRAINING, "1")
    notice = plan_submission([earlier], SPEC_HASH, renewal="2", training_hash=TRAINING).notice
    for part in ("the work was requested again", f"{OTHER} -> {SPEC_HASH}", "kubectl delete trainjob", "adopt_undel"):
        assert part in notice
    again = plan_submission([job(1, "complete", training=TRAINING)], SPEC_HASH, renewal="2", training_hash=TRAINING)
    assert "spec hash" not in again.notice


def test_a_failed_job_is_followed_by_a_new_attempt():
    plan = plan_submission([job(1, "failed")], SPEC_HASH)
    assert (plan.adopt, plan.attempt) == (None, 2)


def test_a_job_marked_as_failed_is_followed_by_a_new_attempt_and_deleted_if_it_still_runs():
    plan = plan_submission([job(1, "kept")], SPEC_HASH)
    assert (plan.adopt, plan.delete, plan.attempt) == (None, [job(1, "kept")], 2)
    plan = plan_submission([job(1, "suspended")], SPEC_HASH)
    assert (plan.adopt, plan.delete, plan.attempt) == (None, [], 2)


def test_a_running_job_with_another_spec_is_deleted():
    plan = plan_submission([job(1, "active", OTHER)], SPEC_HASH)
    assert (plan.adopt, plan.delete) == (None, [job(1, "active", OTHER)])


def test_the_older_of_two_running_jobs_is_adopted():
    plan = plan_submission([job(2, "active"), job(1, "active")], SPEC_HASH)
    assert plan.adopt == job(1, "active")
    assert plan.delete == [job(2, "active")]


def test_a_job_that_is_being_deleted_is_waited_for():
    plan = plan_submission([job(1, "terminating")], SPEC_HASH)
    assert (plan.adopt, plan.terminating, plan.attempt) == (None, [job(1, "terminating")], 2)


jobs_of_a_key = st.lists(
    st.builds(
        job,
        st.integers(1, 4),
        st.sampled_from(["active", "complete", "failed", "terminating", "kept", "suspended"]),
        st.sampled_from([SPEC_HASH, OTHER]),
        st.sampled_from([TRAINING, OTHER]),
        delivered=st.booleans(),
    ),
    max_size=6,
    unique_by=lambda item: item["metadata"]["uid"],
)


@given(jobs_of_a_key, st.randoms(use_true_random=False), st.sampled_from(["", TRAINING]))
def test_at_most_one_job_is_active_after_the_plan(jobs, random, training_hash):
    plan = plan_submission(jobs, SPEC_HASH, training_hash=training_hash)
    active = [j for j in jobs if {"active", "kept"} & set(j["metadata"]["name"].split("-"))]
    remaining = [j for j in active if j not in plan.delete]
    assert remaining == ([plan.adopt] if plan.adopt in active else [])
    if plan.adopt is None:
        assert plan.attempt > max((int(j["metadata"]["labels"][labels.ATTEMPT]) for j in jobs), default=0)
    else:
        assert plan.notice or plan.adopt["metadata"]["annotations"][labels.SPEC_HASH] == SPEC_HASH
        assert "failed" not in plan.adopt["metadata"]["name"]
        assert "terminating" not in plan.adopt["metadata"]["name"]
        assert not {"kept", "suspended"} & set(plan.adopt["metadata"]["name"].split("-"))
    shuffled = list(jobs)
    random.shuffle(shuffled)
    again = plan_submission(shuffled, SPEC_HASH, training_hash=training_hash)
    assert (again.adopt is None) == (plan.adopt is None)
    assert again.attempt == plan.attempt


def test_the_digest_of_a_run_key_depends_on_each_part():
    key = RunKey("airflow", "dag", "task", "run-1")
    assert key.digest == RunKey("airflow", "dag", "task", "run-1").digest
    others = [
        RunKey("kfp", "dag", "task", "run-1"),
        RunKey("airflow", "dag", "task", "run-2"),
        RunKey("airflow", "dag", "task", "run-1", map_index="0"),
        RunKey("airflow", "dag", "task", "run-1", origin="http://other"),
        RunKey("airflow", "da", "gtask", "run-1"),
    ]
    assert len({key.digest, *(other.digest for other in others)}) == 6
    assert len(key.digest) == 16
