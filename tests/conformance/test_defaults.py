"""What the API server fills into a TrainJob, and what it leaves alone."""

from __future__ import annotations

import pytest

from tests.conformance.admission_cases import runtime_patches
from tests.support.kubernetes_client import path_of
from tests.support.trainjobs import train_job

CONTROLLER = "trainer.kubeflow.org/trainjob-controller"


def dry_run_spec(client, namespace, **spec):
    """The spec of the answer to a dry run."""
    answer = client.request("POST", path_of("TrainJob", namespace), train_job(**spec), dryRun="All")
    assert answer.code == 201, answer.message
    return answer.body["spec"]


def test_least(client, namespace):
    """A TrainJob of a runtime's name only gets kind and group of the reference, managedBy and suspend, nothing else."""
    job = train_job()
    job["spec"]["runtimeRef"].pop("kind")
    answer = client.request("POST", path_of("TrainJob", namespace), job, dryRun="All")
    assert answer.body["spec"] == {
        "runtimeRef": {
            "name": "torch-distributed",
            "kind": "ClusterTrainingRuntime",
            "apiGroup": "trainer.kubeflow.org",
        },
        "managedBy": CONTROLLER,
        "suspend": False,
    }
    assert "status" not in answer.body


def test_kept(client, namespace):
    """What was sent is kept as it was: empty objects and lists too, but not null; amounts are not rewritten."""
    sent = {"command": [], "env": [], "resourcesPerNode": {"limits": {"cpu": "0.5", "memory": "1024Mi"}}}
    spec = dry_run_spec(client, namespace, initializer={}, suspend=None, trainer={**sent, "image": None})
    assert (spec["trainer"], spec["initializer"], spec["suspend"]) == (sent, {}, False)


def test_status(client, namespace):
    """A status that is sent along is ignored."""
    job = {**train_job(), "status": {"conditions": [{"type": "Complete"}]}}
    answer = client.request("POST", path_of("TrainJob", namespace), job, dryRun="All")
    assert (answer.code, "status" in answer.body) == (201, False)


@pytest.mark.since("2.2")
def test_rewritten(client, namespace):
    """A job whose patch is stamped is written anew: amounts get short."""
    resources = {"limits": {"cpu": 0.5, "memory": "1024Mi"}}
    spec = dry_run_spec(client, namespace, trainer={"resourcesPerNode": resources}, runtimePatches=runtime_patches())
    assert spec["trainer"]["resourcesPerNode"] == {"limits": {"cpu": "500m", "memory": "1Gi"}}


@pytest.mark.since("2.2")
@pytest.mark.differs("laptop", "volumes in a patch are kept as they are, and a variable without a name is refused")
def test_rewritten_patches(client, namespace):
    """A job whose patch is stamped is written anew: amounts of volumes get short, missing names empty."""
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
