"""Kueue's queue, priority and topology: checks, and the labels and annotations that Kueue reads."""

from __future__ import annotations

import pytest

from trainjob import InvalidSpec, Queue, TrainJob, TrainJobManifest
from trainjob.manifest import Dialect, build_trainjob

RACK = "cloud.provider.com/topology-rack"
PODSET = "kueue.x-k8s.io/podset-"


def build(dialect=Dialect.V2_2, **fields):
    manifest = build_trainjob(TrainJob(**fields), name="job", namespace="ml", dialect=dialect)
    patches = manifest["spec"].get("runtimePatches", [])
    jobs = [job for patch in patches for job in patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]]
    return manifest["metadata"], [job["template"]["spec"]["template"].get("metadata") for job in jobs]


@pytest.mark.parametrize(
    ("fields", "annotation"),
    [
        ({"topology": RACK}, {f"{PODSET}required-topology": RACK}),
        ({"topology": RACK, "topology_mode": "preferred"}, {f"{PODSET}preferred-topology": RACK}),
        ({"topology_mode": "unconstrained"}, {f"{PODSET}unconstrained-topology": "true"}),
    ],
    ids=["required", "preferred", "unconstrained"],
)
def test_a_topology_is_on_the_pods_alone(fields, annotation):
    metadata, pods = build(queue=Queue(name="team", priority_class="high", **fields))
    assert pods == [{"annotations": annotation}]
    assert metadata["labels"] == {
        "kueue.x-k8s.io/queue-name": "team",
        "kueue.x-k8s.io/priority-class": "high",
    }
    assert "annotations" not in metadata


def test_a_queue_without_a_topology_changes_no_pod():
    assert build(queue="team")[1] == []


def test_annotations_of_kueue_reach_the_pods_and_labels_do_not():
    given = {f"{PODSET}group-name": "all", f"{PODSET}slice-size": "8", "example.org/a": "b"}
    labels = {"kueue.x-k8s.io/max-exec-time-seconds": "60", "example.org/team": "nlp"}
    metadata, pods = build(annotations=given, labels=labels)
    assert pods == [{"annotations": given, "labels": {"example.org/team": "nlp"}}]
    assert (metadata["annotations"], metadata["labels"]) == (given, labels)


@pytest.mark.parametrize(
    ("fields", "field", "rule"),
    [
        ({"topology": "a rack"}, "queue.topology", "a label of nodes"),
        ({"topology_mode": "preferred"}, "queue.topology", "give the label of nodes"),
        ({"topology": RACK, "topology_mode": "unconstrained"}, "queue.topology", "leave it out"),
        ({"topology_mode": "strict"}, "queue.topology_mode", "'required', 'preferred' or 'unconstrained'"),
    ],
)
def test_a_topology_that_kueue_could_not_use_is_refused(fields, field, rule):
    with pytest.raises(InvalidSpec) as raised:
        TrainJob(queue={"name": "team", **fields})
    [problem] = raised.value.problems
    assert problem.field == field
    assert rule in problem.allowed


def test_partial_admission_is_refused_with_the_way_that_works():
    minimum = {"kueue.x-k8s.io/job-min-parallelism": "2"}
    with pytest.raises(InvalidSpec, match=r"num_nodes=\(2, 8\)"):
        TrainJob(annotations=minimum)


def test_a_manifest_whose_topology_kueue_would_ignore_is_refused():
    def manifest(annotations):
        spec = {"runtimeRef": {"name": "torch-distributed"}}
        metadata = {"name": "job", "annotations": annotations}
        return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": metadata, "spec": spec}

    with pytest.raises(InvalidSpec, match="Kueue ignores it here"):
        TrainJobManifest(manifest=manifest({f"{PODSET}required-topology": RACK}))
    with pytest.raises(InvalidSpec, match="Kueue admits no part of a TrainJob"):
        TrainJobManifest(manifest=manifest({"kueue.x-k8s.io/job-min-parallelism": "2"}))


@pytest.mark.parametrize(
    "fields", [{"queue": Queue(name="team", topology=RACK)}, {"annotations": {f"{PODSET}required-topology": RACK}}]
)
def test_a_trainer_that_cannot_annotate_pods_is_named(fields):
    with pytest.raises(InvalidSpec, match=r"needs Trainer 2\.1 or later"):
        build(Dialect.V2_0, **fields)
