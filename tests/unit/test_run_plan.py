"""Submit or adopt: the decision, over every set of TrainJobs that a run key can have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob.manifest import labels
from trainjob.run import Adopt, RunKey
from trainjob.run.submission import plan

WANTED, OTHER = "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"


def job(attempt, state, spec=WANTED):
    """`state`: active, complete, failed, or going (being deleted)."""
    metadata = {
        "name": f"tune-{attempt}-{state}-{spec[:1]}",
        "uid": f"{attempt}{state}{spec}",
        "namespace": "ml",
        "labels": {labels.ATTEMPT: str(attempt)},
        "annotations": {labels.SPEC_HASH: spec},
    }
    if state == "going":
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    conditions = {"complete": "Complete", "failed": "Failed"}
    return {
        "metadata": metadata,
        "status": {"conditions": [{"type": conditions[state], "status": "True"}] if state in conditions else []},
    }


@pytest.mark.parametrize("adopt", Adopt)
def test_the_first_attempt(adopt):
    decided = plan([], WANTED, adopt)
    assert (decided.adopt, decided.attempt, decided.cancel, decided.going) == (None, 1, [], [])


@pytest.mark.parametrize("adopt", Adopt)
def test_a_running_one_is_adopted(adopt):
    assert plan([job(1, "failed"), job(2, "active")], WANTED, adopt).adopt == job(2, "active")


def test_a_finished_one_is_adopted_by_a_retry_only():
    jobs = [job(1, "complete")]
    assert plan(jobs, WANTED, Adopt.SUCCEEDED).adopt == jobs[0]
    fresh = plan(jobs, WANTED, Adopt.RUNNING)
    assert (fresh.adopt, fresh.attempt) == (None, 2)


def test_one_that_succeeded_for_an_earlier_run_of_the_same_name_is_not_adopted():
    job_then = job(1, "complete")
    job_then["metadata"]["creationTimestamp"] = "2026-01-01T00:00:10Z"
    assert plan([job_then], WANTED, Adopt.SUCCEEDED, "2026-01-01T00:00:10Z").adopt == job_then
    later = plan([job_then], WANTED, Adopt.SUCCEEDED, "2026-01-01T00:00:11Z")
    assert (later.adopt, later.attempt) == (None, 2)


@pytest.mark.parametrize("adopt", Adopt)
def test_a_failed_one_gives_a_new_attempt(adopt):
    decided = plan([job(1, "failed")], WANTED, adopt)
    assert (decided.adopt, decided.attempt) == (None, 2)


@pytest.mark.parametrize("adopt", Adopt)
def test_a_running_one_with_another_spec_is_ended_first(adopt):
    decided = plan([job(1, "active", OTHER)], WANTED, adopt)
    assert (decided.adopt, decided.cancel) == (None, [job(1, "active", OTHER)])


def test_of_two_running_the_elder_stays():
    decided = plan([job(2, "active"), job(1, "active")], WANTED, Adopt.SUCCEEDED)
    assert decided.adopt == job(1, "active")
    assert decided.cancel == [job(2, "active")]


def test_one_that_is_being_deleted_is_waited_out():
    decided = plan([job(1, "going")], WANTED, Adopt.SUCCEEDED)
    assert (decided.adopt, decided.going, decided.attempt) == (None, [job(1, "going")], 2)


jobs_of_a_key = st.lists(
    st.builds(
        job,
        st.integers(1, 4),
        st.sampled_from(["active", "complete", "failed", "going"]),
        st.sampled_from([WANTED, OTHER]),
    ),
    max_size=6,
    unique_by=lambda item: item["metadata"]["uid"],
)


@given(jobs_of_a_key, st.sampled_from(list(Adopt)), st.randoms(use_true_random=False))
def test_at_most_one_job_works_afterwards(jobs, adopt, random):
    decided = plan(jobs, WANTED, adopt)
    active = [j for j in jobs if "active" in j["metadata"]["name"]]
    left = [j for j in active if j not in decided.cancel]
    assert left == ([decided.adopt] if decided.adopt in active else [])
    if decided.adopt is None:
        assert decided.attempt > max((int(j["metadata"]["labels"][labels.ATTEMPT]) for j in jobs), default=0)
    else:
        assert decided.adopt["metadata"]["annotations"][labels.SPEC_HASH] == WANTED
        assert "failed" not in decided.adopt["metadata"]["name"]
        assert "going" not in decided.adopt["metadata"]["name"]
    shuffled = list(jobs)
    random.shuffle(shuffled)
    again = plan(shuffled, WANTED, adopt)
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
