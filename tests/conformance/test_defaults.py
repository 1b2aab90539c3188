"""Default values that the API server adds to a TrainJob, and fields that it keeps."""

from __future__ import annotations

import pytest

from tests.conformance.admission_cases import runtime_patches
from tests.support.kubernetes_client import path_of
from tests.support.trainjobs import train_job

CONTROLLER = "trainer.kubeflow.org/trainjob-controller"


def dry_run_spec(client, namespace, **spec):
    """Return the spec in the response to a dry run."""
    response = client.request("POST", path_of("TrainJob", namespace), train_job(**spec), dryRun="All")
    assert response.code == 201, response.message
    return response.body["spec"]


def test_minimal_trainjob(client, namespace):
    """A TrainJob with only a runtime name gets the reference's kind and apiGroup, managedBy and suspend."""
    job = train_job()
    job["spec"]["runtimeRef"].pop("kind")
    response = client.request("POST", path_of("TrainJob", namespace), job, dryRun="All")
    assert response.body["spec"] == {
        "runtimeRef": {
            "name": "torch-distributed",
            "kind": "ClusterTrainingRuntime",
            "apiGroup": "trainer.kubeflow.org",
        },
        "managedBy": CONTROLLER,
        "suspend": False,
    }
    assert "status" not in response.body


def test_fields_are_kept(client, namespace):
    """Fields keep their values, including empty objects and lists. Nulls are dropped, quantities are not rewritten."""
    sent = {"command": [], "env": [], "resourcesPerNode": {"limits": {"cpu": "0.5", "memory": "1024Mi"}}}
    spec = dry_run_spec(client, namespace, initializer={}, suspend=None, trainer={**sent, "image": None})
    assert (spec["trainer"], spec["initializer"], spec["suspend"]) == (sent, {}, False)


def test_status_is_ignored(client, namespace):
    """A status in a creation request is ignored."""
    job = {**train_job(), "status": {"conditions": [{"type": "Complete"}]}}
    response = client.request("POST", path_of("TrainJob", namespace), job, dryRun="All")
    assert (response.code, "status" in response.body) == (201, False)


@pytest.mark.since("2.2")
def test_quantities_are_rewritten(client, namespace):
    """If a patch gets its timestamp, the job's quantities are rewritten to their canonical form."""
    resources = {"limits": {"cpu": 0.5, "memory": "1024Mi"}}
    spec = dry_run_spec(client, namespace, trainer={"resourcesPerNode": resources}, runtimePatches=runtime_patches())
    assert spec["trainer"]["resourcesPerNode"] == {"limits": {"cpu": "500m", "memory": "1Gi"}}


@pytest.mark.since("2.2")
def test_patches_are_rewritten(client, namespace):
    """If a patch gets its timestamp, quantities of volumes become canonical, and missing names become empty."""
    spec = dry_run_spec(
        client,
        namespace,
        trainer={"env": [{"value": "x"}]},
        runtimePatches=runtime_patches(pod={"volumes": [{"emptyDir": {"sizeLimit": "0.5Gi"}}]}),
    )
    assert spec["trainer"]["env"] == [{"name": "", "value": "x"}]
    job = spec["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]
    volume = {"name": "", "emptyDir": {"sizeLimit": "512Mi"}}
    assert job["template"]["spec"]["template"]["spec"]["volumes"] == [volume]
