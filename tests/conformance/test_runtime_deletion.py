"""Deletion of a runtime while TrainJobs use it."""

from __future__ import annotations

import pytest

from tests.conformance.runtimes import OWN_RUNTIME, create_own_runtime, replicated_job
from tests.support.kubernetes_client import path_of
from tests.support.polling import wait_until
from tests.support.trainjobs import conditions, counters, is_finished, train_job

RUNTIME_DELETED = (
    'admission webhook "validator.trainjob.trainer.kubeflow.org" denied the request: spec.runtimeRef: Invalid value: '
    '{"name":"own","apiGroup":"trainer.kubeflow.org","kind":"TrainingRuntime"}: TrainingRuntime.trainer.kubeflow.org '
    '"own" not found: specified trainingRuntime must be created before the TrainJob is created'
)


@pytest.fixture
def running_job(client, namespace, gate):
    """Start a job on its own runtime, and return the file that ends it."""
    file, wait = gate
    client.create(train_job(**create_own_runtime(client, namespace, replicated_job("node", wait))), namespace)
    client.wait_for("TrainJob", namespace, "job", lambda job: counters(job).get("node", {}).get("ready"))
    return file


def delete_runtime(client, namespace):
    """Delete the runtime, and wait until the Trainer's webhook knows that.

    The webhook looks runtimes up in a cache.
    """
    client.delete("TrainingRuntime", namespace, OWN_RUNTIME["runtime"])
    job, change = path_of("TrainJob", namespace, "job"), {"metadata": {"labels": {"a": "b"}}}
    wait_until(lambda: client.request("PATCH", job, change, dryRun="All").code == 403)


@pytest.mark.since("2.3")
def test_the_job_of_a_deleted_runtime_keeps_running(client, namespace, running_job):
    """If the runtime of a running job is deleted, the job ends normally, but changes of the job get 403."""
    delete_runtime(client, namespace)
    assert client.find("TrainingRuntime", namespace, OWN_RUNTIME["runtime"]) is None
    for change in ({"spec": {"suspend": True}}, {"metadata": {"labels": {"a": "b"}}}):
        response = client.request("PATCH", path_of("TrainJob", namespace, "job"), change)
        assert (response.code, response.reason, response.message) == (403, "Forbidden", RUNTIME_DELETED)
    running_job.touch()
    assert conditions(client.wait_for("TrainJob", namespace, "job", is_finished))[0][0] == "Complete"


@pytest.mark.since("2.3")
@pytest.mark.usefixtures("running_job")
def test_foreground_deletion_without_the_runtime(client, namespace):
    """Without its runtime, a job's foreground deletion never ends. A background deletion ends it."""
    delete_runtime(client, namespace)
    client.delete("TrainJob", namespace, "job", propagationPolicy="Foreground")
    client.wait_until_deleted("JobSet", namespace, "job")
    stuck = client.get("TrainJob", namespace, "job")
    refused = client.request("PATCH", path_of("TrainJob", namespace, "job"), {"metadata": {"finalizers": None}})
    assert (refused.code, refused.message) == (403, RUNTIME_DELETED)
    assert stuck["metadata"]["finalizers"] == ["foregroundDeletion"]
    client.delete("TrainJob", namespace, "job", propagationPolicy="Background")
    assert client.find("TrainJob", namespace, "job") is None


@pytest.mark.since("2.3")
@pytest.mark.usefixtures("running_job")
def test_foreground_deletion_after_the_runtime_is_created_again(client, namespace):
    """A foreground deletion that waits for a missing runtime ends when that is created again."""
    delete_runtime(client, namespace)
    client.delete("TrainJob", namespace, "job", propagationPolicy="Foreground")
    client.wait_until_deleted("JobSet", namespace, "job")
    create_own_runtime(client, namespace, replicated_job())
    client.wait_until_deleted("TrainJob", namespace, "job")


@pytest.mark.before("2.3")
def test_a_used_runtime_has_a_finalizer(client, namespace, running_job):
    """A finalizer keeps a deleted runtime until no job uses it. The jobs that use it can still be changed."""
    # The Trainer adds it a second after it saw the job (trainingruntime_controller.go: AddAfter); pods can be faster.
    client.wait_for(
        "TrainingRuntime", namespace, OWN_RUNTIME["runtime"], lambda runtime: runtime["metadata"].get("finalizers")
    )
    client.delete("TrainingRuntime", namespace, OWN_RUNTIME["runtime"])
    kept = client.get("TrainingRuntime", namespace, OWN_RUNTIME["runtime"])
    assert "deletionTimestamp" in kept["metadata"]
    assert kept["metadata"]["finalizers"] == ["trainer.kubeflow.org/resource-in-use"]
    client.patch("TrainJob", namespace, "job", {"metadata": {"labels": {"a": "b"}}})
    running_job.touch()
    assert conditions(client.wait_for("TrainJob", namespace, "job", is_finished))[0][0] == "Complete"
    assert client.find("TrainingRuntime", namespace, OWN_RUNTIME["runtime"]) is not None
    client.delete("TrainJob", namespace, "job", propagationPolicy="Foreground")
    client.wait_until_deleted("TrainJob", namespace, "job")
    client.wait_until_deleted("TrainingRuntime", namespace, OWN_RUNTIME["runtime"])
