"""Submit or adopt: the decision, over every set of TrainJobs that a run key can have."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainjob.lifecycle import RunKey
from trainjob.lifecycle.plan import plan_submission
from trainjob.manifest import labels
from trainjob.status.failed_mark import FAILED_MARK, format_failed_mark

SPEC_HASH, OTHER = "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"


def job(attempt, state, spec=SPEC_HASH):
    """`state`: active, complete, failed, going (being deleted), left or held (failed for us; at work, or suspended)."""
    metadata = {
        "name": f"tune-{attempt}-{state}-{spec[:1]}",
        "uid": f"{attempt}{state}{spec}",
        "namespace": "ml",
        "labels": {labels.ATTEMPT: str(attempt)},
        "annotations": {labels.SPEC_HASH: spec},
    }
    if state == "going":
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if state in ("left", "held"):
        metadata["annotations"][FAILED_MARK] = format_failed_mark("RestartLimitExceeded", "it failed", "node", "")
    conditions = {"complete": "Complete", "failed": "Failed"}
    return {
        "metadata": metadata,
        "spec": {"suspend": state == "held"},
        "status": {"conditions": [{"type": conditions[state], "status": "True"}] if state in conditions else []},
    }


def test_the_first_attempt():
    decided = plan_submission([], SPEC_HASH)
    assert (decided.adopt, decided.attempt, decided.delete, decided.terminating) == (None, 1, [], [])


def test_a_running_one_is_adopted():
    assert plan_submission([job(1, "failed"), job(2, "active")], SPEC_HASH).adopt == job(2, "active")


def test_one_that_succeeded_is_adopted():
    assert plan_submission([job(1, "complete")], SPEC_HASH).adopt == job(1, "complete")
    assert plan_submission([job(1, "complete", OTHER)], SPEC_HASH).adopt is None


def test_one_that_succeeded_for_an_earlier_run_of_the_same_name_is_not_adopted():
    job_then = job(1, "complete")
    job_then["metadata"]["creationTimestamp"] = "2026-01-01T00:00:10Z"
    assert plan_submission([job_then], SPEC_HASH, "2026-01-01T00:00:10Z").adopt == job_then
    later = plan_submission([job_then], SPEC_HASH, "2026-01-01T00:00:11Z")
    assert (later.adopt, later.attempt) == (None, 2)


def test_one_that_succeeded_before_a_person_asked_for_the_work_again_is_not_adopted():
    before, after = job(1, "complete"), job(2, "complete")
    after["metadata"]["annotations"][labels.RENEWAL] = "3"
    assert plan_submission([before], SPEC_HASH, renewal="3").adopt is None
    assert plan_submission([before, after], SPEC_HASH, renewal="3").adopt == after
    assert plan_submission([before, after], SPEC_HASH, renewal="4").attempt == 3
    assert plan_submission([job(1, "active")], SPEC_HASH, renewal="3").adopt == job(1, "active")


def test_a_failed_one_gives_a_new_attempt():
    decided = plan_submission([job(1, "failed")], SPEC_HASH)
    assert (decided.adopt, decided.attempt) == (None, 2)


def test_one_that_failed_and_was_kept_gives_a_new_attempt_and_goes_when_it_still_works():
    decided = plan_submission([job(1, "left")], SPEC_HASH)
    assert (decided.adopt, decided.delete, decided.attempt) == (None, [job(1, "left")], 2)
    decided = plan_submission([job(1, "held")], SPEC_HASH)
    assert (decided.adopt, decided.delete, decided.attempt) == (None, [], 2)


def test_a_running_one_with_another_spec_is_ended_first():
    decided = plan_submission([job(1, "active", OTHER)], SPEC_HASH)
    assert (decided.adopt, decided.delete) == (None, [job(1, "active", OTHER)])


def test_of_two_running_the_elder_stays():
    decided = plan_submission([job(2, "active"), job(1, "active")], SPEC_HASH)
    assert decided.adopt == job(1, "active")
    assert decided.delete == [job(2, "active")]


def test_one_that_is_being_deleted_is_waited_out():
    decided = plan_submission([job(1, "going")], SPEC_HASH)
    assert (decided.adopt, decided.terminating, decided.attempt) == (None, [job(1, "going")], 2)


jobs_of_a_key = st.lists(
    st.builds(
        job,
        st.integers(1, 4),
        st.sampled_from(["active", "complete", "failed", "going", "left", "held"]),
        st.sampled_from([SPEC_HASH, OTHER]),
    ),
    max_size=6,
    unique_by=lambda item: item["metadata"]["uid"],
)


@given(jobs_of_a_key, st.randoms(use_true_random=False))
def test_at_most_one_job_works_afterwards(jobs, random):
    decided = plan_submission(jobs, SPEC_HASH)
    active = [j for j in jobs if {"active", "left"} & set(j["metadata"]["name"].split("-"))]
    left = [j for j in active if j not in decided.delete]
    assert left == ([decided.adopt] if decided.adopt in active else [])
    if decided.adopt is None:
        assert decided.attempt > max((int(j["metadata"]["labels"][labels.ATTEMPT]) for j in jobs), default=0)
    else:
        assert decided.adopt["metadata"]["annotations"][labels.SPEC_HASH] == SPEC_HASH
        assert "failed" not in decided.adopt["metadata"]["name"]
        assert "going" not in decided.adopt["metadata"]["name"]
        assert not {"left", "held"} & set(decided.adopt["metadata"]["name"].split("-"))
    shuffled = list(jobs)
    random.shuffle(shuffled)
    again = plan_submission(shuffled, SPEC_HASH)
    assert (again.adopt is None) == (decided.adopt is None)
    assert again.attempt == decided.attempt


def test_a_run_key_is_its_content():
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
