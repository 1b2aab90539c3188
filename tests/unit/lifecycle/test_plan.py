"""Submit or adopt: the decision, over every set of TrainJobs that a run key can have."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainjob.lifecycle import RunKey
from trainjob.lifecycle.plan import plan
from trainjob.manifest import labels
from trainjob.status.left import FAILED_MARK, failed_mark

WANTED, OTHER = "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"


def job(attempt, state, spec=WANTED):
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
        metadata["annotations"][FAILED_MARK] = failed_mark("RestartLimitExceeded", "it failed", "node", "")
    conditions = {"complete": "Complete", "failed": "Failed"}
    return {
        "metadata": metadata,
        "spec": {"suspend": state == "held"},
        "status": {"conditions": [{"type": conditions[state], "status": "True"}] if state in conditions else []},
    }


def test_the_first_attempt():
    decided = plan([], WANTED)
    assert (decided.adopt, decided.attempt, decided.cancel, decided.going) == (None, 1, [], [])


def test_a_running_one_is_adopted():
    assert plan([job(1, "failed"), job(2, "active")], WANTED).adopt == job(2, "active")


def test_one_that_succeeded_is_adopted():
    assert plan([job(1, "complete")], WANTED).adopt == job(1, "complete")
    assert plan([job(1, "complete", OTHER)], WANTED).adopt is None


def test_one_that_succeeded_for_an_earlier_run_of_the_same_name_is_not_adopted():
    job_then = job(1, "complete")
    job_then["metadata"]["creationTimestamp"] = "2026-01-01T00:00:10Z"
    assert plan([job_then], WANTED, "2026-01-01T00:00:10Z").adopt == job_then
    later = plan([job_then], WANTED, "2026-01-01T00:00:11Z")
    assert (later.adopt, later.attempt) == (None, 2)


def test_one_that_succeeded_before_a_person_asked_for_the_work_again_is_not_adopted():
    before, after = job(1, "complete"), job(2, "complete")
    after["metadata"]["annotations"][labels.RENEWAL] = "3"
    assert plan([before], WANTED, renewal="3").adopt is None
    assert plan([before, after], WANTED, renewal="3").adopt == after
    assert plan([before, after], WANTED, renewal="4").attempt == 3
    assert plan([job(1, "active")], WANTED, renewal="3").adopt == job(1, "active")


def test_a_failed_one_gives_a_new_attempt():
    decided = plan([job(1, "failed")], WANTED)
    assert (decided.adopt, decided.attempt) == (None, 2)


def test_one_that_failed_and_was_kept_gives_a_new_attempt_and_goes_when_it_still_works():
    decided = plan([job(1, "left")], WANTED)
    assert (decided.adopt, decided.cancel, decided.attempt) == (None, [job(1, "left")], 2)
    decided = plan([job(1, "held")], WANTED)
    assert (decided.adopt, decided.cancel, decided.attempt) == (None, [], 2)


def test_a_running_one_with_another_spec_is_ended_first():
    decided = plan([job(1, "active", OTHER)], WANTED)
    assert (decided.adopt, decided.cancel) == (None, [job(1, "active", OTHER)])


def test_of_two_running_the_elder_stays():
    decided = plan([job(2, "active"), job(1, "active")], WANTED)
    assert decided.adopt == job(1, "active")
    assert decided.cancel == [job(2, "active")]


def test_one_that_is_being_deleted_is_waited_out():
    decided = plan([job(1, "going")], WANTED)
    assert (decided.adopt, decided.going, decided.attempt) == (None, [job(1, "going")], 2)


jobs_of_a_key = st.lists(
    st.builds(
        job,
        st.integers(1, 4),
        st.sampled_from(["active", "complete", "failed", "going", "left", "held"]),
        st.sampled_from([WANTED, OTHER]),
    ),
    max_size=6,
    unique_by=lambda item: item["metadata"]["uid"],
)


@given(jobs_of_a_key, st.randoms(use_true_random=False))
def test_at_most_one_job_works_afterwards(jobs, random):
    decided = plan(jobs, WANTED)
    active = [j for j in jobs if {"active", "left"} & set(j["metadata"]["name"].split("-"))]
    left = [j for j in active if j not in decided.cancel]
    assert left == ([decided.adopt] if decided.adopt in active else [])
    if decided.adopt is None:
        assert decided.attempt > max((int(j["metadata"]["labels"][labels.ATTEMPT]) for j in jobs), default=0)
    else:
        assert decided.adopt["metadata"]["annotations"][labels.SPEC_HASH] == WANTED
        assert "failed" not in decided.adopt["metadata"]["name"]
        assert "going" not in decided.adopt["metadata"]["name"]
        assert not {"left", "held"} & set(decided.adopt["metadata"]["name"].split("-"))
    shuffled = list(jobs)
    random.shuffle(shuffled)
    again = plan(shuffled, WANTED)
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
