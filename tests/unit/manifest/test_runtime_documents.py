"""Tests of training runtimes that are compared with those of a cluster."""

from __future__ import annotations

import pytest

from trainjob.errors import InvalidSpec
from trainjob.manifest.runtime_documents import find_differences, format_apply_advice, set_namespace

RUNTIME = {"kind": "TrainingRuntime", "metadata": {"name": "own", "labels": {"a": "1"}}, "spec": {"image": "x:1"}}


def test_equal_runtimes_have_no_differences():
    existing = {**RUNTIME, "metadata": {**RUNTIME["metadata"], "labels": {"a": "1", "b": "2"}, "uid": "u"}}
    assert find_differences(existing, RUNTIME) == []


@pytest.mark.parametrize(
    ("written", "stored"),
    [("0.01", "10m"), (1, "1"), ("1024Mi", "1Gi"), ("1e3", "1k"), ("1000m", 1), ("2.", "2"), (".5", "500m")],
)
def test_an_object_that_a_controller_has_written_again_is_equal(written, stored):
    def with_amount(amount, **more):
        spec = {"template": {**more, "containers": [{"name": "a", "resources": {"limits": {"cpu": amount}}}]}}
        return {**RUNTIME, "spec": spec}

    existing = with_amount(stored, metadata={}, resources={}, creationTimestamp=None)
    assert find_differences(existing, with_amount(written)) == []
    assert find_differences(with_amount("3"), with_amount(written))


def test_an_empty_policy_is_a_difference():
    assert find_differences({**RUNTIME, "spec": {"mlPolicy": {"torch": {}}}}, {**RUNTIME, "spec": {"mlPolicy": {}}})


def test_a_difference_is_shown_as_a_diff():
    lines = find_differences({**RUNTIME, "spec": {"image": "x:2"}}, RUNTIME)
    assert [line for line in lines if line.startswith(("-  ", "+  "))] == ['-    "image": "x:2"', '+    "image": "x:1"']
    assert find_differences({**RUNTIME, "metadata": {"name": "own"}}, RUNTIME)


def test_secrets_are_not_shown_but_a_different_one_is_a_difference():
    def with_password(value):
        return {**RUNTIME, "spec": {"env": [{"name": "DB_PASSWORD", "value": value}]}}

    assert find_differences(with_password("s3cret-a"), with_password("s3cret-b")) == [
        "values that could be secrets differ"
    ]


def test_a_runtime_has_its_own_the_requested_or_the_default_namespace():
    assert set_namespace(RUNTIME, "", "default")["metadata"]["namespace"] == "default"
    assert set_namespace(RUNTIME, "ml", "default")["metadata"]["namespace"] == "ml"
    own = {**RUNTIME, "metadata": {"name": "own", "namespace": "team"}}
    assert set_namespace(own, "", "default")["metadata"]["namespace"] == "team"
    with pytest.raises(InvalidSpec, match=r"metadata\.namespace cannot be 'team'"):
        set_namespace(own, "ml", "default")
    cluster_wide = {**own, "kind": "ClusterTrainingRuntime"}
    assert set_namespace(cluster_wide, "ml", "default")["metadata"] == {"name": "own"}


def test_the_advice_selects_the_runtime_by_its_label():
    labelled = {**RUNTIME, "metadata": {"namespace": "ml", "labels": {"trainer.kubeflow.org/framework": "torch"}}}
    assert format_apply_advice(labelled, "a b.yaml") == (
        "kubectl apply -n ml -f 'a b.yaml' -l trainer.kubeflow.org/framework"
    )
    for runtime, file in ((RUNTIME, "job.yaml"), (labelled, "-")):
        assert "RUNTIME.yaml has the TrainingRuntime alone" in format_apply_advice(runtime, file)
