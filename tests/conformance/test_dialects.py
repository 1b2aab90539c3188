"""Detection of the dialect of a cluster by its OpenAPI document; manifests of that dialect take effect."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys

import pytest
import yaml

from tests.conformance.built_jobsets import claim, create_jobsets, find_container, find_pod_spec
from tests.conformance.request_matrix import (
    fine_tune_requests,
    initializer_requests,
    trainer_requests,
    volume_requests,
    workspace_requests,
)
from tests.conformance.test_every_manifest import build_manifest, create_large_runtime, find_refusals
from tests.support.trainjobs import train_job
from trainjob import BuiltinTrainer, CustomTrainerContainer, Placement, TorchTuneConfig, TrainJob
from trainjob.client import Cluster, Connection
from trainjob.manifest import Dialect, detect_dialect
from trainjob.spec.trainer_versions import find_field_problems

pytestmark = pytest.mark.since("2.0")
SCRATCH = {"emptyDir": {}}
TWO_MOUNTS = (
    {"name": "scratch", "source": SCRATCH, "mount_path": "/a"},
    {"name": "scratch", "source": SCRATCH, "mount_path": "/b"},
)
VERSION_FIELDS = {
    "activeDeadlineSeconds",
    "annotations",
    "datasetConfig",
    "elasticPolicy",
    "failurePolicy",
    "labels",
    "mlPolicy",
    "modelConfig",
    "podGroupPolicy",
    "podSpecOverrides",
    "podTemplateOverrides",
    "runtimePatches",
    "template",
}
PATCH_FIELDS = {
    Dialect.V2_0: "podSpecOverrides",
    Dialect.V2_1: "podTemplateOverrides",
    Dialect.V2_2: "runtimePatches",
}


def test_dialect_detection(target):
    """The OpenAPI document names exactly one field for pod patches, which identifies the Trainer version."""
    with contextlib.closing(Cluster(Connection(kubeconfig=target.kubeconfig))) as cluster:
        fields = cluster.trainjob_spec_fields()
    expected = Dialect.V2_2 if target.trainer >= (2, 2) else Dialect(f"2.{target.trainer[1]}")
    assert detect_dialect(fields) is expected
    assert fields & {*PATCH_FIELDS.values()} == {PATCH_FIELDS[expected]}


@pytest.fixture
def submit_manifest(target, namespace, tmp_path):
    """Return a function that submits a file: a suspended TrainJob with these fields."""

    def run(**spec):
        job = train_job("true")
        file = tmp_path / "job.yaml"
        file.write_text(yaml.safe_dump({**job, "spec": {**job["spec"], "suspend": True, **spec}}))
        return subprocess.run(
            [sys.executable, "-m", "trainjob", "submit", str(file), "-n", namespace],
            env={**os.environ, "KUBECONFIG": str(target.kubeconfig), "COLUMNS": "300"},
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run


@pytest.mark.since("2.1")
def test_pod_fields_of_another_version_are_converted(client, namespace, submit_manifest):
    """A file with the pod fields of Trainer 2.1 or of 2.2 gets the same pods on each of them."""
    pod = {"metadata": {"labels": {"team": "a"}}, "spec": {"nodeSelector": {"kubernetes.io/os": "linux"}}}
    jobs = [{"name": "node", "template": {"spec": {"template": pod}}}]
    patch = {"manager": "example.org/a", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
    for fields in (
        {"podTemplateOverrides": [{"targetJobs": [{"name": "node"}], **pod}]},
        {"runtimePatches": [patch]},
    ):
        done = submit_manifest(**fields)
        assert done.returncode == 0, done.stderr
        jobset = client.wait_for("JobSet", namespace, done.stdout.strip(), bool)
        assert find_pod_spec(jobset)["nodeSelector"] == {"kubernetes.io/os": "linux"}
        [job] = jobset["spec"]["replicatedJobs"]
        assert job["template"]["spec"]["template"]["metadata"]["labels"]["team"] == "a"


def test_fields_of_another_version_are_refused_with_what_to_write(client, namespace, target, submit_manifest):
    """A file with a field that only other Trainers have is refused, and the message names what to write."""
    newer = target.trainer >= (2, 2)
    refused = submit_manifest(labels={"a": "b"}) if newer else submit_manifest(activeDeadlineSeconds=600)
    field = "manifest.spec.labels" if newer else "manifest.spec.activeDeadlineSeconds"
    assert (refused.returncode, client.list("TrainJob", namespace)) == (2, [])
    assert f"{field}: the Trainer of this cluster (2." in refused.stderr


def test_the_table_of_fields_is_that_of_the_cluster(target):
    """Exactly the fields are refused that the Trainer of this cluster does not have."""
    with contextlib.closing(Cluster(Connection(kubeconfig=target.kubeconfig))) as cluster:
        fields = cluster.trainjob_spec_fields()
    spec = dict.fromkeys(VERSION_FIELDS | fields, "given")
    refused = {
        problem.field.removeprefix("spec.") for problem in find_field_problems(spec, detect_dialect(fields).value)
    }
    assert refused == VERSION_FIELDS - fields


def test_pod_patches_take_effect(client, namespace, target):
    """The pods have the workspace, node selector, tolerations and service account that a request names."""
    client.create(claim("mine"), namespace)
    placement = Placement(
        node_selector={"kubernetes.io/os": "linux"},
        tolerations=({"key": "gpu", "operator": "Exists"},),
        service_account_name="default",
    )
    trainer = CustomTrainerContainer(command=("true",))
    request = TrainJob(trainer=trainer, workspace="mine", placement=placement)
    jobset = create_jobsets(client, namespace, {"job": build_manifest(request, namespace, target)})["job"]
    pod = find_pod_spec(jobset)
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert pod["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert pod["serviceAccountName"] == "default"
    assert {"name": "workspace", "persistentVolumeClaim": {"claimName": "mine"}} in pod["volumes"]
    assert {"name": "workspace", "mountPath": "/workspace"} in find_container(jobset)["volumeMounts"]


@pytest.mark.since("2.1")
def test_pods_have_labels_and_annotations(client, namespace, target):
    """The pods have the labels and annotations of a request; Trainer 2.0 cannot set them."""
    client.create(claim("mine"), namespace)
    texts = {"labels": {"example.org/team": "nlp"}, "annotations": {"example.org/ticket": "a b"}}
    trainer = CustomTrainerContainer(command=("true",))
    requests = {
        "alone": TrainJob(trainer=trainer, **texts),
        "mounted": TrainJob(trainer=trainer, workspace="mine", volumes=TWO_MOUNTS, **texts),
        "built-in": TrainJob(
            trainer=BuiltinTrainer(config=TorchTuneConfig()), runtime="torchtune-llama3.2-1b", **texts
        ),
    }
    manifests = {name: build_manifest(request, namespace, target) for name, request in requests.items()}
    for name, jobset in create_jobsets(client, namespace, manifests).items():
        for job in jobset["spec"]["replicatedJobs"]:
            pod = job["template"]["spec"]["template"]["metadata"]
            for kind, expected in texts.items():
                assert pod[kind].items() >= expected.items(), (name, job["name"])


@pytest.mark.before("2.1")
def test_every_manifest(client, namespace, target):
    """The API server accepts every request that the builder accepts for 2.0. Only Qwen's runtime does not exist."""
    create_large_runtime(client, namespace)
    fetched = fine_tune_requests(dataset="hf://o/n", model_initializer="hf://o/n")
    over_one = fine_tune_requests(workspace="claim")
    requests = itertools.chain(
        fetched, over_one, initializer_requests(), workspace_requests(), trainer_requests(), volume_requests()
    )
    builder_errors, server_errors = find_refusals(client, namespace, target, requests)
    assert {text for text in server_errors.values() if '"torchtune-qwen2.5-1.5b" not found' not in text} == set()
    late = [refusal for refusal in builder_errors.values() if "has API 2.0" in refusal]
    assert late
    twice = {label for label, _ in volume_requests() if label.split()[-1] in ("twice", "15-times")}
    assert {label for label, refusal in builder_errors.items() if "several mounts of one volume" in refusal} == twice
    assert all("needs Trainer 2." in refusal for refusal in late)
