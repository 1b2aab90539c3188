"""Tests of the labels and annotations of a request, and of the pods that get them."""

from __future__ import annotations

import pytest

from trainjob import CustomTrainerContainer, ExportModel, FineTune, InitializeDataset, InitializeModel, TrainJob
from trainjob.errors import InvalidSpec
from trainjob.manifest import Dialect, build_trainjob, spec_hash, to_trainjob
from trainjob.manifest.labels import MODEL

LABELS, ANNOTATIONS = {"example.org/team": "nlp", "cost": ""}, {"example.org/ticket": "https://example.org/a b"}
STEPS = {
    "train": TrainJob,
    "fine-tune": lambda **more: FineTune(model="llama3.2-1b", config={"framework": "torchtune"}, workspace="w", **more),
    "dataset": lambda **more: InitializeDataset(storage_uri="hf://a/b", workspace="w", **more),
    "model": lambda **more: InitializeModel(storage_uri="hf://a/b", workspace="w", **more),
    "export": lambda **more: ExportModel(destination="s3://a/b", workspace="w", **more),
}
STEP = pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)


def build(request, dialect=Dialect.V2_2):
    return build_trainjob(to_trainjob(request), name="n", namespace="ns", dialect=dialect)


def pod_templates(job):
    """Return the pod templates of the patches of a TrainJob for Trainer 2.2 and later."""
    jobs = [
        job
        for patch in job["spec"].get("runtimePatches", [])
        for job in patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    ]
    return [job["template"]["spec"]["template"] for job in jobs]


@STEP
def test_trainjob_and_pods_of_each_step_have_the_labels_and_annotations(step):
    job = build(step(labels=LABELS, annotations=ANNOTATIONS))
    assert job["metadata"]["labels"].items() >= LABELS.items()
    assert job["metadata"]["annotations"].items() >= ANNOTATIONS.items()
    assert [template["metadata"] for template in pod_templates(job)] == [{"labels": LABELS, "annotations": ANNOTATIONS}]


@STEP
def test_a_request_without_labels_has_the_same_hash_and_manifest_as_before(step):
    assert spec_hash(step()) == spec_hash(step(labels={}, annotations={}))
    assert all("metadata" not in template for template in pod_templates(build(step())))


@STEP
def test_labels_and_annotations_are_part_of_the_request(step):
    hashes = {spec_hash(step()), spec_hash(step(labels=LABELS)), spec_hash(step(annotations=ANNOTATIONS))}
    assert len(hashes) == 3


def test_an_export_keeps_its_own_annotations():
    job = build(STEPS["export"](annotations=ANNOTATIONS))
    assert job["metadata"]["annotations"] == {**ANNOTATIONS, MODEL: "s3://a/b"}
    assert pod_templates(job)[0]["metadata"] == {"annotations": ANNOTATIONS}


def test_pods_do_not_get_the_labels_of_kueue():
    """Kueue would put the pods into the queue, too."""
    job = build(TrainJob(labels={"kueue.x-k8s.io/queue-name": "gpu", "a": "b"}, queue="gpu"))
    assert pod_templates(job)[0]["metadata"] == {"labels": {"a": "b"}}


def test_the_dialects_of_older_trainers():
    request = TrainJob(trainer=CustomTrainerContainer(image="i"), labels={"a": "b"})
    template = {"targetJobs": [{"name": "node"}], "metadata": {"labels": {"a": "b"}}}
    assert build(request, Dialect.V2_1)["spec"]["podTemplateOverrides"] == [template]
    assert "podSpecOverrides" not in build(request, Dialect.V2_0)["spec"]
    assert build(request, Dialect.V2_0)["metadata"]["labels"] == {"a": "b"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"labels": {"trainjob.dev/run": "x"}}, r"labels\.trainjob\.dev/run cannot be 'x': this key is set by"),
        ({"labels": {"trainjob.dev/model": "x"}}, "this key is set by trainjob itself"),
        ({"labels": {"app.kubernetes.io/managed-by": "x"}}, "this key is set by trainjob itself"),
        ({"annotations": {"trainjob.dev/run-key": "x"}}, r"annotations\.trainjob\.dev/run-key cannot be 'x'"),
        ({"labels": {"team": "a b"}}, r"labels\.team cannot be 'a b': a label's value has at most 63"),
        ({"labels": {"team": "x" * 64}}, "a label's value has at most 63"),
        ({"labels": {"a/b/c": "x"}}, "a key is a name with an optional prefix"),
        ({"annotations": {"a b": "x"}}, "a key is a name with an optional prefix"),
    ],
)
@STEP
def test_wrong_labels_and_annotations_are_refused(step, fields, message):
    with pytest.raises(InvalidSpec, match=message):
        step(**fields)


@STEP
def test_the_annotation_of_the_model_may_be_set(step):
    assert step(annotations={MODEL: "s3://a/b"}).annotations == {MODEL: "s3://a/b"}
