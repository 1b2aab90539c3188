"""Tests of the decision whether another attempt follows a TrainJob that has ended."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob.errors import Interrupted, InvalidSpec, NeverStarted
from trainjob.lifecycle import JobReference, Limits, Resubmission, RunKey, plan_resubmission, reference_to
from trainjob.lifecycle.prepared_job import prepare_job
from trainjob.manifest import build_trainjob, labels
from trainjob.manifest.identity import spec_hash
from trainjob.spec import CustomTrainerContainer, TrainJob
from trainjob.status import Category, Outcome, Phase
from trainjob.status.failure_rules import RULES

REQUEST, KEY = TrainJob(trainer=CustomTrainerContainer(image="busybox")), RunKey("test", "dag", "tune", "run-1")


def reference(interruptions=0, *, adopted=False):
    return JobReference("tune-1", "ml", "uid-1", 1, adopted, interruptions=interruptions)


def outcome(category=Category.INFRASTRUCTURE, phase=Phase.FAILED, message="Evicted: the node was low on memory\nmore"):
    return Outcome("tune-1", "ml", "uid-1", phase, category, "RestartLimitExceeded", message)


def test_an_interruption_starts_another_attempt_and_is_counted():
    planned = plan_resubmission(reference(1), outcome(), 3)
    assert planned.interruptions == 2
    assert planned.notice == (
        "TrainJob ml/tune-1 was interrupted by the infrastructure (Evicted: the node was low on memory); "
        "starting another attempt, interruption 2 of 3"
    )


NODES = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}, {}]}


@pytest.mark.parametrize("affinity", [{}, {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": NODES}}])
@pytest.mark.parametrize("avoid_nodes", [True, False])
def test_the_next_attempt_avoids_the_nodes_on_which_attempts_hung(avoid_nodes, affinity):
    ended = replace(outcome(), hung_on=("gpu-2", "gpu-7"))
    planned = plan_resubmission(replace(reference(), hung_on=("gpu-1", "gpu-2")), ended, 3)
    assert planned.hung_on == ("gpu-2", "gpu-7", "gpu-1")
    watchdog, placement = {"action": "restart", "avoid_nodes": avoid_nodes}, {"affinity": affinity}
    trainer = CustomTrainerContainer(image="busybox", command=["true"])
    request = TrainJob(trainer=trainer, watchdog=watchdog, placement=placement)
    prepared = prepare_job(request, KEY, "ml", earlier=planned)
    job = build_trainjob(prepared.job, **prepared.build_metadata(2))
    job["metadata"]["uid"] = "uid-2"
    assert reference_to(job, adopted=True).hung_on == planned.hung_on
    assert prepared.spec_hash == prepare_job(request, KEY, "ml").spec_hash
    [patch] = job["spec"].get("runtimePatches", [None])
    if not avoid_nodes and not affinity:
        assert patch is None
        return
    [pods] = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    nodes = pods["template"]["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    terms = nodes["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    excluded = [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in planned.hung_on]
    given = NODES["nodeSelectorTerms"] if affinity else [{}]
    assert terms == [{**term, "matchFields": excluded} if avoid_nodes else term for term in given]


def test_without_a_message_the_notice_has_the_reason():
    assert "(RestartLimitExceeded)" in plan_resubmission(reference(), outcome(message=""), 1).notice


def test_a_used_up_budget_ends_the_step():
    assert plan_resubmission(reference(2), outcome(), 3) is not None
    assert plan_resubmission(reference(3), outcome(), 3) is None
    assert plan_resubmission(reference(), outcome(), 0) is None


@pytest.mark.parametrize("category", [one for one in Category if one is not Category.INFRASTRUCTURE])
def test_every_other_end_is_the_result_of_the_step(category):
    """Only the category of `Interrupted` starts another attempt."""
    assert (RULES[category].error is Interrupted) is False
    assert plan_resubmission(reference(), outcome(category), 3) is None


def test_an_attempt_without_a_reservation_is_followed_by_one_with_fewer_nodes():
    ended = replace(outcome(Category.UNSCHEDULABLE, message="no reservation for 8 nodes"), reason="NoReservation")
    planned = plan_resubmission(replace(reference(2), num_nodes=8, fewer_nodes=4), ended, 2)
    assert (planned.num_nodes, planned.interruptions, planned.failures, planned.pause) == (4, 2, 0, 0.0)
    assert planned.notice == ("TrainJob ml/tune-1: no reservation for 8 nodes; the next attempt requests 4 nodes")
    assert plan_resubmission(reference(), ended, 2) is None


def test_the_deletion_of_an_adopted_trainjob_does_not_use_up_the_budget():
    deleted = outcome(Category.DELETED, Phase.DELETED, "")
    planned = plan_resubmission(reference(3, adopted=True), deleted, 3)
    assert (planned.interruptions, "was deleted after it was adopted" in planned.notice) == (3, True)
    assert plan_resubmission(reference(3), deleted, 3) is None


@given(budget=st.integers(0, 20), is_adopted=st.booleans())
def test_a_step_that_is_always_interrupted_starts_one_attempt_more_than_its_budget(budget, is_adopted):
    """Each attempt is read from its manifest, as a process reads it that adopts the attempt after a crash."""
    interruptions, attempts = 0, 0
    while True:
        attempts += 1
        metadata = prepare_job(REQUEST, KEY, "ml", earlier=Resubmission(interruptions=interruptions)).build_metadata(
            attempts
        )
        job = build_trainjob(REQUEST, **metadata)
        job["metadata"]["uid"] = str(attempts)
        planned = plan_resubmission(reference_to(job, adopted=is_adopted), outcome(), budget)
        if planned is None:
            break
        interruptions = planned.interruptions
    assert attempts == budget + 1


def test_the_first_attempt_of_a_try_has_no_annotation():
    assert labels.INTERRUPTIONS not in prepare_job(REQUEST, KEY, "ml").build_metadata(1)["annotations"]


@pytest.mark.parametrize(("text", "number"), [("2", 2), ("", 0), ("-1", 0), ("two", 0), ("²", 0), ("9" * 5000, 0)])
def test_an_edited_annotation_that_is_no_number_counts_as_0(text, number):
    assert labels.get_interruptions({"metadata": {"annotations": {labels.INTERRUPTIONS: text}}}) == number


def test_an_edited_annotation_keeps_what_may_be_names_of_nodes():
    job = {"metadata": {"annotations": {labels.HUNG_ON: "gpu-1.example.com,,GPU 2, gpu-3,gpu-4"}}}
    assert labels.list_hung_on(job) == ("gpu-1.example.com", "gpu-4")


@pytest.mark.parametrize("value", [-1, 1.5, "many", None])
def test_an_invalid_budget_is_refused(value):
    with pytest.raises(InvalidSpec, match="interruption_retries"):
        TrainJob(interruption_retries=value)


@pytest.mark.parametrize(("value", "budget"), [(0, 0), (2.0, 2), ("5", 5)])
def test_a_valid_budget_becomes_an_integer(value, budget):
    parsed = TrainJob(interruption_retries=value).interruption_retries
    assert (parsed, type(parsed)) == (budget, int)
    assert TrainJob().interruption_retries == 3


def test_the_settings_of_a_wait_do_not_change_the_request():
    settings = {"queue_timeout": "8h", "start_timeout": 600, "interruption_retries": 0, "on_failure": "keep"}
    other = TrainJob(trainer=REQUEST.trainer, **settings)
    assert spec_hash(other) == spec_hash(REQUEST)
    limits = Limits.of(other)
    assert (limits.queued, limits.starting) == (timedelta(hours=8), timedelta(minutes=10))


def failure(category=Category.APPLICATION, phase=Phase.FAILED):
    return outcome(category, phase, "the container failed with exit code 3")


def test_a_failure_starts_another_attempt_after_a_pause_and_is_counted():
    planned = plan_resubmission(replace(reference(2), failures=1), failure(), 3, attempts=4)
    assert (planned.failures, planned.interruptions, planned.pause) == (2, 2, 20.0)
    assert planned.notice == (
        "TrainJob ml/tune-1 failed (the container failed with exit code 3); attempt 3 of 4 starts in 20 s"
    )


def test_the_last_failure_ends_the_step():
    assert plan_resubmission(replace(reference(), failures=1), failure(), 3, attempts=3) is not None
    assert plan_resubmission(replace(reference(), failures=2), failure(), 3, attempts=3) is None
    assert plan_resubmission(reference(), failure(), 3) is None


def test_the_pause_doubles_up_to_five_minutes():
    planned = [
        plan_resubmission(replace(reference(), failures=n), failure(), 0, attempts=5000) for n in (*range(7), 2000)
    ]
    assert [one.pause for one in planned] == [10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0, 300.0]


@pytest.mark.parametrize("category", [one for one in Category if issubclass(RULES[one].error, NeverStarted)])
def test_another_attempt_follows_a_start_problem_only_if_it_may_help(category):
    assert bool(plan_resubmission(reference(), failure(category), 3, attempts=2)) == RULES[category].retryable


@pytest.mark.parametrize(
    "category",
    [
        Category.APPLICATION,
        Category.INITIALIZER,
        Category.OUT_OF_MEMORY,
        Category.STORAGE_FULL,
        Category.DEADLINE,
        Category.UNKNOWN,
    ],
)
def test_another_attempt_follows_a_trainjob_that_ran_and_failed(category):
    assert plan_resubmission(reference(), failure(category), 3, attempts=2).failures == 1


def test_a_deletion_by_another_user_is_not_repeated():
    assert plan_resubmission(reference(), failure(Category.DELETED, Phase.DELETED), 3, attempts=2) is None


def test_interruptions_do_not_use_up_the_attempts():
    planned = plan_resubmission(replace(reference(0), failures=1), outcome(), 3, attempts=2)
    assert (planned.interruptions, planned.failures, planned.pause) == (1, 1, 0.0)
    assert plan_resubmission(replace(reference(3), failures=0), outcome(), 3, attempts=2) is None


def test_the_number_of_failures_is_read_from_the_manifest():
    metadata = prepare_job(REQUEST, KEY, "ml", earlier=Resubmission(failures=2)).build_metadata(3)
    job = build_trainjob(REQUEST, **metadata)
    job["metadata"]["uid"] = "uid-3"
    assert reference_to(job, adopted=True).failures == 2
