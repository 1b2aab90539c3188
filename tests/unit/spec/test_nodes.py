"""Tests of a range of nodes: which numbers the attempts request, and what stays the same."""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob import CustomTrainer, CustomTrainerContainer, FineTune, InvalidSpec, TorchTuneConfig, TrainJob, TRLConfig
from trainjob.lifecycle import Resubmission, RunKey
from trainjob.lifecycle.prepared_job import prepare_job
from trainjob.manifest import labels, spec_hash, training_hash, weight_fields
from trainjob.manifest.node_counts import Shrinking, describe_node_count, find_shrinking, read_shrinking

KEY = RunKey("test", "dag", "tune", "run-1")


def fine_tune(**config):
    return FineTune(model="m", workspace="w", config=TRLConfig(method="sft", **config))


def train():
    """Do nothing."""


@given(most=st.integers(2, 64), accumulation=st.integers(1, 12), data=st.data())
def test_each_attempt_has_the_same_samples_in_each_step(most, accumulation, data):
    allowed = [count for count in range(1, most) if most * accumulation % count == 0]
    least = data.draw(st.sampled_from(allowed))
    config = TRLConfig(method="sft", num_nodes=(least, most), batch_size=3, gradient_accumulation_steps=accumulation)
    counts = config.node_counts
    assert (counts[0], counts[-1]) == (most, least)
    assert all(later <= max(least, earlier // 2) for earlier, later in itertools.pairwise(counts))
    assert {config.with_nodes(count).samples_per_step for count in counts} == {3 * accumulation * most}
    assert all(config.with_nodes(count).num_nodes == count for count in counts)


@pytest.mark.parametrize("least", [3, 5, 6, 7])
def test_a_minimum_that_changes_the_samples_of_a_step_is_refused(least):
    with pytest.raises(InvalidSpec, match=r"num_nodes cannot be .* with these minimums: 1, 2, 4$"):
        TRLConfig(method="sft", num_nodes=(least, 8))


@pytest.mark.parametrize("value", [(8, 2), (2, 2), (0, 2), (1, 2, 3), [4], [], "two", 2.5, (1, 2**31), {"least": 1}])
def test_what_is_no_range_is_refused(value):
    with pytest.raises(InvalidSpec, match=r"num_nodes cannot be .* or a range \(minimum, maximum\) such as \(2, 8\)"):
        CustomTrainer(func=train, num_nodes=value)


def test_a_range_is_refused_where_the_number_of_processes_decides_the_weights():
    rule = "the samples of a step depend on the number of processes"
    with pytest.raises(InvalidSpec, match=rule):
        TRLConfig(method="grpo", num_nodes=(2, 8))
    with pytest.raises(InvalidSpec, match=rule):
        TorchTuneConfig(num_nodes=(2, 8))
    with pytest.raises(InvalidSpec, match=r"shrink_after cannot be .* it needs a range of nodes"):
        CustomTrainer(func=train, num_nodes=4, shrink_after=timedelta(minutes=5))


def test_functions_and_containers_get_half_of_the_nodes():
    """These read the number of processes themselves, so any number is possible."""
    assert CustomTrainer(func=train, num_nodes=[3, 13]).node_counts == (13, 6, 3)
    assert CustomTrainerContainer(command=["train"], num_nodes=(1, 4)).node_counts == (4, 2, 1)
    assert CustomTrainer(func=train, num_nodes=4).node_counts == (4,)
    assert CustomTrainer(func=train).node_counts == ()


REQUESTS = [
    fine_tune(num_nodes=(2, 8), shrink_after=timedelta(minutes=5), batch_size=4),
    TrainJob(trainer=CustomTrainer(func=train, num_nodes=(2, 8), shrink_after=timedelta(minutes=5), resume=True)),
    TrainJob(trainer=CustomTrainerContainer(image="busybox", num_nodes=(2, 8), shrink_after=timedelta(minutes=5))),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=["framework", "function", "container"])
def test_an_attempt_with_fewer_nodes_is_the_same_request_and_training(request_):
    prepared = [prepare_job(request_, KEY, "ml", earlier=Resubmission(num_nodes=count)) for count in (None, 8, 4, 2)]
    assert [each.job.trainer.num_nodes for each in prepared] == [8, 8, 4, 2]
    metadata = [each.build_metadata(1) for each in prepared]
    assert [read_shrinking({"metadata": each}) for each in metadata] == [
        Shrinking(4, 300.0),
        Shrinking(4, 300.0),
        Shrinking(2, 300.0),
        None,
    ]
    for name in (labels.SPEC_HASH, labels.TRAINING_HASH):
        assert len({each["annotations"][name] for each in metadata}) == 1
    owners = {(each.job.trainer.env or {}).get("TRAINJOB_RUN", "") for each in prepared}
    owners |= {word for each in prepared for word in getattr(each.job.trainer, "args", None) or () if "fields" in word}
    assert len(owners - {""}) == (0 if request_ is REQUESTS[2] else 1)
    # Only the numbers of nodes and of accumulated batches differ.
    assert prepared[1].job == prepared[0].job
    assert prepared[2].resize(None).job == prepared[0].job


def test_the_arguments_of_an_attempt_have_its_accumulation():
    eight, two = (
        prepare_job(REQUESTS[0], KEY, "ml", earlier=Resubmission(num_nodes=count)).job.trainer.args for count in (8, 2)
    )
    assert "gradient_accumulation_steps" not in str(eight)
    assert "gradient_accumulation_steps" in str(two)


def test_a_fixed_number_of_nodes_may_become_a_range():
    """The training continues from its checkpoints: the maximum counts."""
    fixed, elastic = fine_tune(num_nodes=8, batch_size=4), fine_tune(num_nodes=(2, 8), batch_size=4)
    assert weight_fields(fixed) == weight_fields(elastic)
    assert spec_hash(fixed) != spec_hash(elastic)
    quick = fine_tune(num_nodes=(2, 8), batch_size=4, shrink_after=timedelta(seconds=5))
    assert training_hash(quick) == training_hash(elastic)


def test_the_log_has_what_an_attempt_requests():
    assert describe_node_count(REQUESTS[0], 4) == (
        "requests 4 of 2 to 8 nodes; with gradient_accumulation_steps=2, each step still has 32 samples. After 300 s "
        "without them, the next attempt requests 2"
    )
    assert describe_node_count(REQUESTS[1], 2) == "requests 2 of 2 to 8 nodes"
    assert describe_node_count(fine_tune(num_nodes=8), 8) == ""


@pytest.mark.parametrize(
    "text", ["", "x", "[]", "{}", '{"num_nodes": "x", "after": 1}', '{"num_nodes": 1e999, "after": 1}']
)
def test_an_annotation_that_a_user_has_edited_has_no_rule(text):
    assert read_shrinking({"metadata": {"annotations": {labels.SHRINKING: text}}}) is None
    assert find_shrinking(fine_tune(num_nodes=8)) is None
