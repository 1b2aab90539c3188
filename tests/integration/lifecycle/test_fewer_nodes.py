"""Tests of attempts that request fewer nodes, because the laptop cluster has no memory for more."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.support.laptop_memory import get_large_memory
from tests.support.polling import wait_until
from trainjob import CustomTrainerContainer, TrainJob
from trainjob.errors import WaitTimeout
from trainjob.lifecycle import (
    KillAction,
    Limits,
    Resubmission,
    RunKey,
    cancel,
    run_attempts,
    set_suspended,
    submit,
    wait,
)
from trainjob.lifecycle.cancellation import mark_failed
from trainjob.manifest import labels
from trainjob.status import Phase, Verdict, derive_verdict
from trainjob.status.failure_rules import NO_RESERVATION


@pytest.fixture
def large_memory(cluster):
    return get_large_memory(cluster)


def elastic_job(memory, gate, nodes=(1, 4), **more):
    """Return a job whose pods run until the gate exists."""
    trainer = CustomTrainerContainer(
        image="busybox",
        command=["sh", "-c", f"until [ -e {gate} ]; do sleep 0.05; done"],
        num_nodes=nodes,
        shrink_after=timedelta(seconds=1),
        resources_per_node={"memory": memory},
    )
    return TrainJob(trainer=trainer, **more)


def run(cluster, job, key, gate, limits=None):
    """Run the attempts of a step; return their references, the last outcome, the notices.

    The gate is opened for an attempt with two nodes.
    """
    references, notices = [], []

    def submit_attempt(earlier):
        references.append(submit(cluster, job, key, earlier=earlier, on_notice=notices.append))
        if references[-1].num_nodes == 2:
            gate.touch()
        return references[-1]

    def follow(reference):
        return wait(cluster, reference, limits=limits)

    _, outcome = run_attempts(
        submit_attempt, follow, lambda planned: notices.append(planned.notice), interruption_retries=0
    )
    return references, outcome, notices


@pytest.mark.parametrize("action", KillAction)
def test_an_attempt_that_does_not_fit_is_followed_by_one_that_fits(cluster, unique, large_memory, tmp_path, action):
    key = RunKey("test", "workflow", unique, "run-1")
    gate = tmp_path / "gate"
    references, outcome, notices = run(cluster, elastic_job(large_memory, gate), key, gate, Limits(on_failure=action))
    assert outcome.succeeded
    assert [(each.num_nodes, each.fewer_nodes) for each in references] == [(4, 2), (2, 1)]
    names = [f"TrainJob {each}" for each in references]
    assert notices == [
        f"{names[0]} requests 4 of 1 to 4 nodes. After 1 s without them, the next attempt requests 2",
        f"{names[0]}: no reservation for 4 nodes within 1 s; the next attempt requests 2 nodes",
        f"{names[1]} requests 2 of 1 to 4 nodes. After 1 s without them, the next attempt requests 1",
    ]
    # The attempt without nodes is deleted, whatever happens to failed ones.
    [left] = cluster.list_trainjobs("default", f"{labels.RUN_KEY}={key.digest}")
    assert left["metadata"]["uid"] == references[1].uid


def test_the_smallest_number_waits_for_its_nodes(cluster, unique, large_memory, tmp_path):
    key = RunKey("test", "workflow", unique, "run-1")
    reference = submit(
        cluster, elastic_job(large_memory, tmp_path / "gate", nodes=(4, 8)), key, earlier=Resubmission(num_nodes=4)
    )
    assert (reference.num_nodes, reference.fewer_nodes) == (4, None)
    with pytest.raises(WaitTimeout, match="Unschedulable"):
        wait(cluster, reference, limits=Limits(total=timedelta(seconds=4), on_timeout=KillAction.KEEP))
    assert not derive_verdict(cluster.get_trainjob(reference.name, "default")).phase.finished
    cancel(cluster, reference)


def test_a_process_that_adopts_an_attempt_continues_with_its_number_of_nodes(cluster, unique, large_memory, tmp_path):
    """The first waiter was killed after it had submitted an attempt with fewer nodes."""
    key, gate = RunKey("test", "workflow", unique, "run-1"), tmp_path / "gate"
    job = elastic_job(large_memory, gate)
    smaller = submit(cluster, job, key, earlier=Resubmission(num_nodes=2))
    adopted = submit(cluster, job, key)
    assert (adopted.uid, adopted.num_nodes, adopted.fewer_nodes) == (smaller.uid, 2, 1)
    wait_until(lambda: derive_verdict(cluster.get_trainjob(smaller.name, "default")).phase is Phase.RUNNING, 60)
    changed = submit(cluster, job.model_copy(update={"labels": {"team": "b"}}), key)
    assert changed.uid == smaller.uid
    gate.touch()
    assert wait(cluster, changed).succeeded


@pytest.mark.parametrize("is_suspended", [False, True], ids=["unschedulable", "queued"])
def test_an_attempt_whose_waiter_was_killed_before_its_deletion_is_followed_by_a_smaller_one(
    cluster, unique, large_memory, tmp_path, is_suspended
):
    key, gate = RunKey("test", "workflow", unique, "run-1"), tmp_path / "gate"
    job = elastic_job(large_memory, gate)
    largest = submit(cluster, job, key)
    set_suspended(cluster, largest.name, "default", suspended=is_suspended)
    mark_failed(cluster, largest, Verdict(Phase.FAILED, NO_RESERVATION, "no reservation for 4 nodes within 1 s"))
    references, outcome, _ = run(cluster, job, key, gate)
    assert outcome.succeeded
    assert [each.num_nodes for each in references] == [4, 2]
    assert references[0].uid == largest.uid
