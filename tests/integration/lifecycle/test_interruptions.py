"""Tests of attempts after interruptions by the infrastructure, with the core alone."""

from __future__ import annotations

import threading

import pytest

from tests.support.interruptions import evict
from trainjob import CustomTrainerContainer, TrainJob
from trainjob.errors import Interrupted
from trainjob.lifecycle import KillAction, Limits, Resubmission, RunKey, cancel, plan_resubmission, submit, wait
from trainjob.manifest import labels

JOB = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["sleep", "60"]), on_failure="suspend")
LIMITS = Limits(on_failure=KillAction.SUSPEND)


@pytest.fixture
def key(unique):
    return RunKey("test", "workflow", unique, "run-1")


@pytest.fixture
def selector(key):
    return f"{labels.RUN_KEY}={key.digest}"


def interrupt(cluster, key, selector, **arguments):
    """Submit an attempt, evict its pod, and return the reference and the outcome."""
    reference = submit(cluster, JOB, key, **arguments)
    uids = frozenset(job["metadata"]["uid"] for job in cluster.list_trainjobs("default", selector))
    evict(cluster, selector, earlier=uids - {reference.uid})
    return reference, wait(cluster, reference, limits=LIMITS)


def test_the_next_attempt_has_the_number_of_interruptions(cluster, key, selector):
    first, outcome = interrupt(cluster, key, selector)
    with pytest.raises(Interrupted):
        outcome.raise_for_failure()
    second = submit(cluster, JOB, key, earlier=plan_resubmission(first, outcome, 1))
    assert (first.interruptions, second.interruptions, second.attempt) == (0, 1, 2)
    created = cluster.get_trainjob(second.name, "default")
    assert created["metadata"]["annotations"][labels.INTERRUPTIONS] == "1"
    cancel(cluster, second)


def test_an_adopted_attempt_keeps_its_number_and_a_new_try_starts_a_new_budget(cluster, key, selector):
    _, outcome = interrupt(cluster, key, selector)
    created = submit(cluster, JOB, key, earlier=Resubmission(interruptions=1))
    adopted = submit(cluster, JOB, key)  # by a process that knows nothing of the first interruption
    assert (adopted.uid, adopted.adopted, adopted.interruptions) == (created.uid, True, 1)
    evict(cluster, selector, earlier=frozenset([outcome.uid]))
    assert plan_resubmission(adopted, wait(cluster, adopted, limits=LIMITS), 1) is None
    next_try = submit(cluster, JOB, key)
    assert (next_try.attempt, next_try.interruptions) == (3, 0)
    cancel(cluster, next_try)


def test_two_processes_that_decide_at_the_same_time_create_one_attempt(cluster, key, selector):
    interrupt(cluster, key, selector)
    start, references = threading.Barrier(4), []

    def decide():
        start.wait()
        references.append(submit(cluster, JOB, key, earlier=Resubmission(interruptions=1)))

    threads = [threading.Thread(target=decide) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({reference.uid for reference in references}) == 1
    assert {(reference.attempt, reference.interruptions) for reference in references} == {(2, 1)}
    assert len(cluster.list_trainjobs("default", selector)) == 2
    cancel(cluster, references[0])


def test_pods_of_the_interrupted_attempt_are_not_mistaken_for_those_of_the_next_one(cluster, key, selector, tmp_path):
    """The interrupted TrainJob was deleted, so the next one has its name, and maybe the same second of creation."""
    script = f"until [ -e {tmp_path}/gate ]; do sleep 0.05; done"
    job = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["sh", "-c", script]))
    reference, interrupted = submit(cluster, job, key), []
    while len(interrupted) < 3:
        interrupted.append(evict(cluster, selector, earlier=interrupted))
        outcome = wait(cluster, reference)
        assert outcome.uid == interrupted[-1]
        reference = submit(cluster, job, key, earlier=Resubmission(interruptions=len(interrupted)))
        assert reference.name == outcome.job
        assert cluster.get_trainjob(reference.name, "default")["metadata"]["creationTimestamp"] > outcome.created
    (tmp_path / "gate").touch()
    assert wait(cluster, reference).succeeded
