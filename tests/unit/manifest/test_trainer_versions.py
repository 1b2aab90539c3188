"""Manifests with fields of another Trainer version: converted, or refused with what to write."""

from __future__ import annotations

import copy

import pytest

from trainjob import InvalidSpec, TrainJobManifest
from trainjob.manifest import Dialect, adapt_manifest

POD = {"metadata": {"labels": {"team": "a"}}, "spec": {"nodeSelector": {"pool": "gpu"}, "tolerations": []}}
OVERRIDES = [
    {"targetJobs": [{"name": "node"}, {"name": "launcher"}], **POD},
    {"targetJobs": [{"name": "node"}], "spec": {"serviceAccountName": "s"}},
]


def manifest(**spec):
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "a"},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, **spec},
    }


def patch(*jobs, manager="trainjob.dev/workflow-step", **template):
    replicated = [{"name": name, "template": {"spec": {"template": pod}}} for name, pod in jobs]
    return {
        "manager": manager,
        "trainingRuntimeSpec": {"template": {**template, "spec": {"replicatedJobs": replicated}}},
    }


def refuse(given, dialect=Dialect.V2_2):
    with pytest.raises(InvalidSpec) as raised:
        adapt_manifest(given, dialect)
    return str(raised.value)


def test_overrides_become_patches():
    before = manifest(podTemplateOverrides=OVERRIDES)
    given = copy.deepcopy(before)
    found = adapt_manifest(given, Dialect.V2_2)
    more = {"spec": {"serviceAccountName": "s"}}
    patches = [patch(("node", POD), ("launcher", POD)), patch(("node", more), manager="trainjob.dev/workflow-step-2")]
    assert (found, given) == (manifest(runtimePatches=patches), before)


def test_patches_become_overrides():
    given = manifest(runtimePatches=[patch(("node", POD), ("launcher", {})), patch(manager="example.org/b")])
    overrides = [{"targetJobs": [{"name": "node"}], **POD}, {"targetJobs": [{"name": "launcher"}]}]
    assert adapt_manifest(given, Dialect.V2_1) == manifest(podTemplateOverrides=overrides)


@pytest.mark.parametrize("dialect", Dialect)
def test_a_manifest_of_the_same_version_is_unchanged(dialect):
    fields = {
        Dialect.V2_0: {"podSpecOverrides": [], "labels": {"a": "b"}},
        Dialect.V2_1: {"podTemplateOverrides": OVERRIDES, "annotations": {"a": "b"}},
        Dialect.V2_2: {"runtimePatches": [patch(("node", POD))], "activeDeadlineSeconds": 3},
    }
    assert adapt_manifest(manifest(**fields[dialect]), dialect) == manifest(**fields[dialect])


def test_patches_of_more_than_pods_are_refused():
    of_jobset = patch(("node", POD), metadata={"labels": {"a": "b"}})
    of_job = patch(("node", POD))
    of_job["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]["template"]["metadata"] = {"labels": {}}
    for one in (of_jobset, of_job, {"manager": "a/b"}, "text"):
        message = refuse(manifest(runtimePatches=[one]), Dialect.V2_1)
        assert message.startswith("manifest.spec.runtimePatches: the Trainer of this cluster (2.1) does not have this")
        assert message.endswith("write podTemplateOverrides (2.1) or podSpecOverrides (2.0)")


@pytest.mark.parametrize(
    "wrong", [[{"spec": {}}], [{"targetJobs": [{"name": "node"}], "sepc": {}}], {"a": 1}, [*OVERRIDES, "a"]]
)
def test_overrides_of_another_form_are_refused(wrong):
    assert "or runtimePatches (2.2 and later)" in refuse(manifest(podTemplateOverrides=wrong))


def test_both_forms_at_once_are_refused():
    both = manifest(podTemplateOverrides=OVERRIDES, runtimePatches=[patch(("node", POD))])
    assert "manifest.spec.podTemplateOverrides: " in refuse(both)
    assert "manifest.spec.runtimePatches: " in refuse(both, Dialect.V2_1)


@pytest.mark.parametrize(
    ("dialect", "field", "words"),
    [
        (Dialect.V2_2, "podSpecOverrides", "only 2.0: write podTemplateOverrides (2.1) or runtimePatches (2.2 and"),
        (Dialect.V2_2, "labels", "only 2.0 and 2.1: write metadata.labels of spec.runtimePatches[].trainingR"),
        (Dialect.V2_0, "activeDeadlineSeconds", "only 2.2 and later: set the time limit of the step"),
        (Dialect.V2_0, "podTemplateOverrides", "only 2.1: write podSpecOverrides (2.0)"),
    ],
)  # fmt: skip
def test_other_fields_are_refused_with_what_to_write(dialect, field, words):
    message = refuse(manifest(**{field: {}}), dialect)
    assert f"manifest.spec.{field}: the Trainer of this cluster ({dialect.value}) does not have this field, " in message
    assert words in message


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("podGroupPolicy", "write it into the training runtime, as spec.podGroupPolicy"),
        ("mlPolicy", "write it into the training runtime, as spec.mlPolicy"),
        ("failurePolicy", "write it into the training runtime, as spec.template.spec.failurePolicy"),
        ("elasticPolicy", "the number of nodes is fixed: write spec.trainer.numNodes"),
    ],
)
def test_fields_that_no_trainer_has_are_refused_without_a_cluster(field, words):
    with pytest.raises(InvalidSpec) as raised:
        TrainJobManifest(manifest=manifest(**{field: {}}))
    assert str(raised.value) == f"manifest.spec.{field}: no released Trainer has this field in a TrainJob: {words}"
