"""Tests of the sums of pod seconds and GPU seconds by label."""

from __future__ import annotations

import json
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob.errors import InvalidSpec
from trainjob.inspection.cost import JobUsage, group_usages, parse_job_usages, read_job_usages
from trainjob.status import Category, Outcome, Phase, Usage

GPU = "nvidia.com/gpu"
NOW = datetime(2026, 1, 1, 1, tzinfo=timezone.utc)


def job_usage(uid="a", seconds=10.0, *, gpus=1, team="red", complete=True, phase=Phase.COMPLETE):
    labels = {"team": team} if team else {}
    return JobUsage("ml", f"job-{uid}", uid, phase, labels, Usage(seconds, {GPU: gpus * seconds}, complete))


def line(known, **changes):
    outcome = Outcome(
        job=known.name,
        namespace=known.namespace,
        uid=known.uid,
        phase=known.phase,
        category=Category.SUCCEEDED,
        labels=known.labels,
        usage=known.usage,
    )
    return json.dumps({**outcome.to_dict(), **changes})


def test_each_value_of_the_label_is_a_group_with_the_most_gpu_seconds_first():
    usages = [
        job_usage("a", 10),
        job_usage("b", 5),
        job_usage("c", 100, team="blue", gpus=2, complete=False),
        job_usage("d", 7, team="", gpus=0, complete=False, phase=Phase.RUNNING),
    ]
    found = group_usages(usages, "team")
    assert [(each.value, each.trainjobs, each.active, each.incomplete) for each in found] == [
        ("blue", 1, 0, 1),
        ("red", 2, 0, 0),
        (None, 1, 1, 0),
    ]
    assert [(each.usage.pod_seconds, each.usage.gpu_seconds) for each in found] == [(100, 200), (15, 15), (7, 0)]


def test_short_names_mean_the_labels_of_this_project_and_namespace_is_no_label():
    usage = JobUsage("ml", "j", "u", Phase.COMPLETE, {"trainjob.dev/workflow": "nightly", "namespace": "x"}, Usage())
    for by, value in (
        ("workflow", "nightly"),
        ("trainjob.dev/workflow", "nightly"),
        ("namespace", "ml"),
        ("task", None),
    ):
        assert [each.value for each in group_usages([usage], by)] == [value]


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (job_usage(seconds=10), 10),  # the same outcome in two files
        (job_usage(seconds=4, complete=False), 10),  # a waiter that came late knows less
        (job_usage(seconds=40, complete=False), 10),  # pods ran after their end was recorded, by another clock
    ],
)
def test_a_trainjob_counts_once_with_its_complete_usage(other, expected):
    for usages in ([job_usage(), other], [other, job_usage()]):
        [group] = group_usages(usages)
        assert (group.trainjobs, group.usage.pod_seconds) == (1, expected)


def test_of_two_lower_bounds_the_larger_counts():
    [group] = group_usages([job_usage(seconds=4, complete=False), job_usage(seconds=6, complete=False)])
    assert (group.trainjobs, group.incomplete, group.usage.pod_seconds) == (1, 1, 6)


USAGES = st.lists(
    st.builds(
        lambda uid, seconds, complete: job_usage(str(uid), seconds, team=("red", "")[uid % 2], complete=complete),
        st.integers(0, 9),
        st.integers(0, 10_000).map(float),
        st.booleans(),
    ),
    max_size=12,
)


@given(USAGES, st.randoms(use_true_random=False))
def test_neither_order_nor_repetition_changes_the_sums(usages, random):
    mixed = [*usages, *usages]
    random.shuffle(mixed)
    assert group_usages(mixed, "team") == group_usages(usages, "team")


@given(USAGES)
def test_the_groups_add_up_to_the_total(usages):
    groups = group_usages(usages, "team")
    total = group_usages(usages)
    for name in ("trainjobs", "active", "incomplete"):
        assert sum(getattr(each, name) for each in groups) == sum(getattr(each, name) for each in total)
    assert sum(each.usage.gpu_seconds for each in groups) == sum(each.usage.gpu_seconds for each in total)


@given(USAGES)
def test_an_export_has_the_same_usages(usages):
    assert parse_job_usages([line(each) for each in usages], "f") == usages


def test_empty_lines_are_ignored_and_an_outcome_without_usage_is_incomplete():
    [found] = parse_job_usages(["\n", line(job_usage(), usage=None), "  \n"], "f")
    assert found.usage == Usage(complete=False)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("{", "Expecting property name"),
        ("[]", "it is a list"),
        ("null", "it is a NoneType"),
        ('{"job": "a"}', "'namespace' is missing"),
        (line(job_usage(), uid=""), "uid must be a text"),
        (line(job_usage(), uid=7), "uid must be a text"),
        (line(job_usage(), phase="Done"), "'Done' is not a valid Phase"),
        (line(job_usage(), labels=[1]), "labels and usage must be objects"),
        (line(job_usage(), usage=3), "labels and usage must be objects"),
        (line(job_usage(), usage={"pod_seconds": 1}), "'resource_seconds' is missing"),
        (line(job_usage(), usage={"pod_seconds": -1, "resource_seconds": {}}), "seconds must be finite"),
        (line(job_usage(), usage={"pod_seconds": 1, "resource_seconds": []}), "resource_seconds must be an object"),
    ],
)
def test_an_invalid_line_is_reported_with_file_and_line(text, cause):
    with pytest.raises(InvalidSpec) as caught:
        parse_job_usages([line(job_usage()), text], "outcomes.jsonl")
    assert "outcomes.jsonl:2" in str(caught.value)
    assert cause in str(caught.value)


def test_the_first_ten_invalid_lines_are_reported():
    with pytest.raises(InvalidSpec) as caught:
        parse_job_usages(["x"] * 30, "f")
    assert [problem.field for problem in caught.value.problems] == [f"f:{number}" for number in range(1, 11)]


def test_pods_belong_to_the_trainjob_of_their_name_in_their_namespace():
    """A younger TrainJob may have the name of a deleted one, whose pods are older."""

    def pod(uid, namespace, created):
        meta = {"uid": uid, "namespace": namespace, "creationTimestamp": created}
        conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:30:00Z"}]
        labels = {"jobset.sigs.k8s.io/jobset-name": "tune"}
        return {"metadata": {**meta, "labels": labels}, "spec": {}, "status": {"conditions": conditions}}

    meta = {"namespace": "a", "name": "tune", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    pods = [pod("1", "a", "2026-01-01T00:00:01Z"), pod("2", "b", "2026-01-01T00:00:01Z")]
    pods.append(pod("3", "a", "2025-12-31T00:00:00Z"))
    [found] = read_job_usages([{"metadata": {**meta, "labels": {"team": "red"}}}], pods, NOW)
    assert (found.usage.pod_seconds, found.labels) == (1800.0, {"team": "red"})
