"""Requests with a complete TrainJob manifest: parsing, refusals and additions."""

from __future__ import annotations

import copy
import json

import pytest

from trainjob import CustomTrainerContainer, InvalidSpec, TrainJob, TrainJobManifest
from trainjob.manifest import add_env, build_trainjob, spec_hash, to_trainjob

API = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}
WRITTEN = {
    **API,
    "metadata": {"name": "nightly", "namespace": "ml", "labels": {"team": "t"}, "annotations": {"a": "b"}},
    "spec": {
        "runtimeRef": {"name": "torch-distributed"},
        "trainer": {"numNodes": 2, "env": [{"name": "A", "value": "1"}]},
    },
}
TEXT = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
spec: {runtimeRef: {name: torch-distributed}}
"""


def test_a_manifest_is_a_dict_or_yaml_or_json():
    minimal = {**API, "spec": {"runtimeRef": {"name": "torch-distributed"}}}
    given = [TrainJobManifest(manifest=content) for content in (minimal, TEXT, json.dumps(minimal))]
    assert [job.manifest for job in given] == [minimal] * 3
    assert len({spec_hash(job) for job in given}) == 1


def test_only_name_namespace_labels_and_annotations_are_changed():
    before = copy.deepcopy(WRITTEN)
    job = TrainJobManifest(manifest=WRITTEN)
    built = build_trainjob(to_trainjob(job), name="n", namespace="ns", labels={"l": "1"}, annotations={"x": "y"})
    assert built == {
        **API,
        "metadata": {
            "name": "n",
            "namespace": "ns",
            "labels": {"team": "t", "l": "1"},
            "annotations": {"a": "b", "x": "y"},
        },
        "spec": WRITTEN["spec"],
    }
    assert before == WRITTEN
    assert (job.name, job.namespace, job.runtime.name) == ("nightly", "ml", "torch-distributed")
    assert job.runtime.kind == "ClusterTrainingRuntime"


def test_our_labels_win_over_those_in_the_file():
    job = TrainJobManifest(manifest=WRITTEN)
    assert build_trainjob(job, name="n", namespace="ns", labels={"team": "ours"})["metadata"]["labels"] == {
        "team": "ours"
    }


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ("spec: [", ["manifest", "YAML or JSON", "line 1"]),
        ("just text", ["manifest", "just text", "a mapping"]),
        ("", ["manifest is required", "a mapping"]),
        ("a: 1\n---\nb: 2", ["manifest", "a text of 2 documents"]),
        ({"kind": "TrainJob", "spec": {}}, ["manifest.apiVersion", "trainer.kubeflow.org/v1alpha1"]),
        ({**API, "kind": "PyTorchJob", "spec": {}}, ["manifest.kind", "PyTorchJob", "TrainJob"]),
        ({**API}, ["manifest.spec.runtimeRef.name", "torch-distributed"]),
        ({**API, "spec": {"runtimeRef": "torch-distributed"}}, ["manifest.spec.runtimeRef.name"]),
        ({**WRITTEN, "status": {}}, ["manifest.status", "remove it"]),
        ({**WRITTEN, "metadata": {"uid": "u", "finalizers": []}}, ["metadata.uid", "metadata.finalizers"]),
        ({**WRITTEN, "metadata": ["name"]}, ["manifest.metadata", "a mapping"]),
        (
            {**API, "spec": {"runtimeRef": {"name": "r"}, "trainer": {"env": {}}}},
            ["manifest.spec.trainer.env", "a list"],
        ),
        ({**WRITTEN, "metadata": {"labels": ["a"]}}, ["manifest.metadata.labels", "a mapping"]),
        ({**API, "spec": {"runtimeRef": {"name": "r"}, "trainer": "me"}}, ["manifest.spec.trainer", "'me'"]),
        (TEXT + "metadata: {labels: {number: .nan}}", ["manifest", "JSON", "finite"]),
        (TEXT + "metadata: {name: \ud800}", ["manifest", "the character U+D800 is not allowed in line"]),
        ({**WRITTEN, "metadata": {"name": "\ud800"}}, ["manifest", "half of a surrogate pair"]),
        (json.dumps({**WRITTEN, "metadata": {"name": "x"}}).replace("x", "\ud800"), ["manifest", "surrogate"]),
        (
            "kind: TrainingRuntime\n---\n" + TEXT,
            ["manifest cannot be 'a text of 2 documents'", "`kubectl apply -f FILE -l "],
        ),
    ],
)
def test_a_manifest_that_is_not_a_trainjob_is_refused(manifest, words):
    with pytest.raises(InvalidSpec) as raised:
        TrainJobManifest(manifest=manifest)
    for word in words:
        assert word in str(raised.value)


def job_with_env(value):
    trainer = {"env": [{"name": "PEER", "value": value}]}
    return {**API, "metadata": {"name": "tune"}, "spec": {"runtimeRef": {"name": "r"}, "trainer": trainer}}


def test_a_host_with_the_name_in_the_manifest_is_refused():
    """The file of an earlier `trainjob migrate convert` has such hosts, with which training would wait forever."""
    with pytest.raises(InvalidSpec) as raised:
        TrainJobManifest(manifest=job_with_env("tcp://tune-node-0-1.tune:29500"))
    [problem] = raised.value.problems
    assert (problem.field, problem.value) == ("manifest.spec.trainer.env[0].value", "'tune-node-0-1.tune'")
    assert "write $(JOBSET_NAME)-node-0-1.$(JOBSET_NAME)" in problem.allowed


@pytest.mark.parametrize("name", ["MASTER_ADDR", "SCHEDULER_HOST", "RDZV_ENDPOINT", "API_URL", "SERVER", "MASTER"])
def test_the_name_in_the_manifest_as_the_value_of_a_host_is_refused(name):
    """The JobSet has a headless Service with the TrainJob's final name."""
    sidecar = {"name": "log", "env": [{"name": name, "value": "tune"}]}
    jobs = [{"name": "node", "template": {"spec": {"template": {"spec": {"containers": [sidecar]}}}}}]
    patch = {"manager": "a.org/b", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
    in_trainer, in_patch = job_with_env("tune"), job_with_env("other")
    in_trainer["spec"]["trainer"]["env"][0]["name"] = name
    in_patch["spec"]["runtimePatches"] = [patch]
    for given, field in (
        (in_trainer, "manifest.spec.trainer.env[0].value"),
        (
            in_patch,
            "manifest.spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.",
        ),
    ):
        with pytest.raises(InvalidSpec) as raised:
            TrainJobManifest(manifest=given)
        [problem] = raised.value.problems
        assert (problem.field.startswith(field), problem.value) == (True, "'tune'")
        assert "write $(JOBSET_NAME), and before it in env the variable JOBSET_NAME" in problem.allowed


def test_the_name_in_the_manifest_as_another_value_is_accepted():
    assert TrainJobManifest(manifest=job_with_env("tune")).name == "tune"


@pytest.mark.parametrize(
    "value",
    ["$(JOBSET_NAME)-node-0-1.$(JOBSET_NAME)", "data-tune-node-0-1.tune", "tune-node-0-1.tuned", "tune-node.tune"],
)
def test_other_hosts_are_accepted(value):
    assert TrainJobManifest(manifest=job_with_env(value)).name == "tune"


@pytest.mark.parametrize(
    "job",
    [TrainJobManifest(manifest=WRITTEN), TrainJob(trainer=CustomTrainerContainer(image="i", env={"A": "1"}))],
    ids=["written", "made"],
)
def test_added_variables_do_not_replace_existing_ones(job):
    more = add_env(job, {"A": "2", "B": "$(A)"})
    env = build_trainjob(more, name="n", namespace="ns")["spec"]["trainer"]["env"]
    assert {variable["name"]: variable["value"] for variable in env} == {"A": "1", "B": "$$(A)"}
    assert add_env(job, {}) is job


def test_variables_of_a_manifest_without_a_trainer():
    env = build_trainjob(add_env(TrainJobManifest(manifest=TEXT), {"B": "2"}), name="n", namespace="ns")["spec"][
        "trainer"
    ]
    assert env == {"env": [{"name": "B", "value": "2"}]}
