"""Which training runtimes may be deleted: those that the command created and that no TrainJob uses."""

from __future__ import annotations

import pytest

from trainjob.retention.unused_runtimes import RuntimeReference, find_reason_to_keep, runtime_reference_of

OURS = {"app.kubernetes.io/managed-by": "trainjob"}


def runtime(labels=OURS, **annotations):
    return {"metadata": {"name": "own", "namespace": "team", "labels": labels, "annotations": annotations}}


def job(name, runtime="own", kind="TrainingRuntime", namespace="team", **metadata):
    reference = {"name": runtime, **({"kind": kind} if kind else {})}
    return {"metadata": {"name": name, "namespace": namespace, **metadata}, "spec": {"runtimeRef": reference}}


@pytest.mark.parametrize("labels", [None, {}, {"app.kubernetes.io/managed-by": "Helm"}, {"a": "trainjob"}])
def test_a_runtime_of_another_tool_is_kept(labels):
    assert find_reason_to_keep(runtime(labels), []).startswith("trainjob did not create it")


def test_a_runtime_that_kubectl_applied_is_kept():
    applied = runtime(**{"kubectl.kubernetes.io/last-applied-configuration": "{}"})
    assert find_reason_to_keep(applied, []).endswith("kubectl has applied it since")


@pytest.mark.parametrize(
    ("jobs", "reason"),
    [
        ([], ""),
        ([job("a", runtime="other"), job("b", kind="ClusterTrainingRuntime"), job("c", kind="")], ""),
        ([job("a")], "TrainJob a uses it"),
        ([job("a", deletionTimestamp="2026-01-31T12:00:00Z")], "TrainJob a uses it"),
        ([job(name) for name in "ba"], "TrainJob a, b use it"),
        ([job(name) for name in "edcba"], "TrainJob a, b, c and 2 more use it"),
    ],
)
def test_a_used_runtime_is_kept(jobs, reason):
    assert find_reason_to_keep(runtime(), jobs) == reason


@pytest.mark.parametrize(
    ("found", "expected", "text"),
    [
        (job("a"), RuntimeReference("TrainingRuntime", "team", "own"), "TrainingRuntime team/own"),
        (job("a", kind=""), RuntimeReference("ClusterTrainingRuntime", "", "own"), "ClusterTrainingRuntime own"),
    ],
)
def test_the_reference_of_a_trainjob(found, expected, text):
    assert runtime_reference_of(found) == expected
    assert str(expected) == text
