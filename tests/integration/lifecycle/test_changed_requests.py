"""A running TrainJob whose request has changed: kept if result and resources are the same, else replaced."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.support.polling import wait_until
from trainjob import CustomTrainerContainer, Placement, RunKey, SecretKeyReference, TrainJob
from trainjob.lifecycle import cancel, submit
from trainjob.manifest import labels
from trainjob.status import Phase, derive_verdict

RUN = "run-1"


def sleep(seconds=300, **fields):
    trainer = {"image": "busybox", "command": ["sleep", str(seconds)], **fields.pop("trainer", {})}
    return TrainJob(trainer=CustomTrainerContainer(**trainer), **fields)


@pytest.fixture
def resubmit(cluster, unique):
    """Return a function that submits two requests of a step; the second while the first runs."""
    references = []

    def submit_both(first, second, *, runs=True):
        key, notices = RunKey("test", "workflow", unique, RUN), []
        references.append(submit(cluster, first, key))
        wait_until(lambda: get_phase(cluster, references[-1]) is Phase.RUNNING or not runs)
        references.append(submit(cluster, second, key, on_notice=notices.append))
        return *references, notices

    yield submit_both
    for each in references:
        cancel(cluster, each)


def get_phase(cluster, reference):
    return derive_verdict(cluster.get_trainjob(reference.name, reference.namespace)).phase


@pytest.mark.parametrize(
    "change",
    [
        {"labels": {"team": "b", "cost": "7"}, "annotations": {"ticket": "12"}},
        {"deadline": timedelta(hours=9)},
        {"ttl_after_success": timedelta(days=1), "on_kill": "keep"},
        {"max_restarts": 4},
        {"placement": Placement(node_selector={"spot": "false"})},
        {"trainer": {"env": {"NCCL_DEBUG": "INFO"}}},
        {"queue": "other"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_change_of_neither_result_nor_resources_leaves_it_running(cluster, resubmit, change):
    first, second, notices = resubmit(sleep(labels={"team": "a"}), sleep(**{"labels": {"team": "a"}, **change}))
    assert (second.uid, second.adopted) == (first.uid, True)
    metadata = cluster.get_trainjob(first.name, first.namespace)["metadata"]
    assert metadata["labels"].items() >= change.get("labels", {"team": "a"}).items()
    assert metadata["annotations"].items() >= change.get("annotations", {}).items()
    assert (labels.TTL_AFTER_SUCCESS in metadata["annotations"]) == ("ttl_after_success" in change)
    is_other_request = "ttl_after_success" not in change
    assert [
        f"TrainJob {first.namespace}/{first.name} runs already, and is not replaced" in each for each in notices
    ] == ([True] * is_other_request)


@pytest.mark.parametrize(
    "change",
    [
        {"seconds": 301},
        {"trainer": {"resources_per_node": {"memory": "64Mi"}}},
        {"trainer": {"num_nodes": 2}},
        {"trainer": {"image": "busybox:1"}},
        {"trainer": {"env": {"RATE": "0.1"}}},
        {"trainer": {"env": {"TOKEN": SecretKeyReference(name="s", key="k")}}},
    ],
    ids=str,
)
def test_a_change_of_result_or_resources_replaces_it(resubmit, change):
    first, second, notices = resubmit(sleep(), sleep(**change))
    assert (second.uid != first.uid, second.adopted, notices) == (True, False, [])


def test_one_that_does_not_run_yet_is_replaced_after_any_change(resubmit):
    """No work is repeated, and the change may let it start."""
    stuck = sleep(placement=Placement(node_selector={"missing": "node"}))
    first, second, notices = resubmit(stuck, sleep(), runs=False)
    assert (second.uid != first.uid, second.adopted, notices) == (True, False, [])
