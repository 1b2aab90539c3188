"""Tests of TrainJobs on the laptop cluster, which must behave as with the real Trainer 2.3.0."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.local.cluster_client import NAMESPACE, ClusterClient, pod_patch, train_job
from tests.support.polling import wait_until
from trainjob_local import Image, LocalCluster

INITIALIZER = Image(
    "initializer",
    entrypoint=("sh", "-c", "mkdir -p $PLACE && echo $STORAGE_URI > $PLACE/$HOSTNAME"),
    env={"PLACE": "x"},
)


@pytest.fixture(scope="module")
def client():
    images = [INITIALIZER, Image("torchtune-trainer"), Image("acme/trainer", environment=Path("/nowhere"))]
    with LocalCluster(images=images, pod_env={"FROM_CLUSTER": "yes"}, backoff=0.2, backoff_max=0.4) as cluster:
        opened = ClusterClient(cluster.kubeconfig)
        yield opened
        opened.close()


def test_a_successful_trainjob_has_status_log_and_events(client, unique):
    client.create_job(
        train_job(unique, "sh", "-c", "echo hello; echo $FROM_CLUSTER $HOSTNAME $PET_NNODES $PET_MASTER_ADDR")
    )
    end = client.wait_until_ended(unique)
    assert (end["type"], end["reason"], end["message"]) == (
        *("Complete", "AllJobsCompleted", "jobset completed successfully"),
    )
    counters = {"name": "node", "active": 0, "failed": 0, "ready": 0, "succeeded": 1, "suspended": 0}
    assert client.get_job(unique)["status"]["jobsStatus"] == [counters]
    pod = client.get_pod(unique)
    assert pod.metadata.name.startswith(f"{unique}-node-0-0-")
    assert pod.status.phase == "Succeeded"
    assert client.read_log(pod.metadata.name) == f"hello\nyes {unique}-node-0-0 1 127.0.0.1\n"
    assert "trainer.kubeflow.org/trainjob-ancestor-step" not in pod.metadata.labels
    reasons = [(kind, reason) for kind, reason, _ in client.list_events(name_prefix=unique)]
    assert set(reasons) == {
        ("Job", "SuccessfulCreate"),
        ("Pod", "Scheduled"),
        ("Pod", "Started"),
        ("Job", "Completed"),
        ("JobSet", "AllJobsCompleted"),
    }


def test_a_deleted_trainjob_leaves_no_objects_and_volumes(client, unique):
    client.create_job(train_job(unique, "sleep", "600", runtime="torchtune-llama3.2-1b"))
    client.wait_for(unique, lambda job: any(one["ready"] for one in job.get("status", {}).get("jobsStatus", [])))
    client.delete(unique)
    assert wait_until(lambda: client.is_deleted(unique) and client.list_pods(unique) == [])
    claims = client.core.list_namespaced_persistent_volume_claim
    assert wait_until(lambda: f"initializer-{unique}" not in [claim.metadata.name for claim in claims(NAMESPACE).items])
    volumes = client.state / "volumes"
    assert wait_until(lambda: not list(volumes.glob(f"*{unique}*")))
    services = client.core.list_namespaced_service
    assert wait_until(lambda: unique not in [service.metadata.name for service in services(NAMESPACE).items])


def test_two_trainjobs_share_a_workspace(client, unique):
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"metadata": {"name": unique}, "spec": spec}
    client.core.create_namespaced_persistent_volume_claim(NAMESPACE, claim)
    waits = ("PersistentVolumeClaim", "WaitForFirstConsumer")
    assert wait_until(lambda: waits in [event[:2] for event in client.list_events(name_prefix=unique)])
    pod = {
        "volumes": [{"name": "w", "persistentVolumeClaim": {"claimName": unique}}],
        "containers": [{"name": "node", "volumeMounts": [{"name": "w", "mountPath": "/workspace"}]}],
    }
    for step, script in enumerate(("echo one > /workspace/x", "echo two >> /workspace/x; cat /workspace/x")):
        name = f"{unique}{step}"
        client.create_job(train_job(name, "sh", "-c", script, runtimePatches=pod_patch(pod)))
        assert client.wait_until_ended(name)["type"] == "Complete"
    assert client.read_log(client.get_pod(f"{unique}1").metadata.name) == "one\ntwo\n"
    client.core.delete_namespaced_persistent_volume_claim(unique, NAMESPACE)  # its pods have ended
    assert wait_until(lambda: not list((client.state / "volumes").glob(f"*{unique}*")))


# -- pods that do not start -------------------------------------------------------------------------------------------


def test_a_pod_waits_for_free_resources(client, unique):
    def gpus(count):
        return {"resourcesPerNode": {"limits": {"nvidia.com/gpu": count}}}

    def verdict(name):
        pods = client.list_pods(name)
        found = [one for one in (pods[0].status.conditions or []) if one.type == "PodScheduled"] if pods else []
        return found[0].message if found else None

    big, second = f"{unique}a", f"{unique}b"
    client.create_job(train_job(big, "sleep", "600", trainer=gpus(6)))
    client.wait_for(big, lambda job: job.get("status", {}).get("jobsStatus", [{}])[0].get("ready"))
    client.create_job(train_job(second, "true", trainer=gpus(6)))
    assert wait_until(lambda: verdict(second)).endswith("1 No preemption victims found for incoming pod.")
    client.delete(big)
    assert client.wait_until_ended(second)["type"] == "Complete"


def test_a_container_without_local_environment_does_not_start(client, unique):
    client.create_runtime(unique, policy="Never", limit=0)
    client.create_job(
        train_job(unique, "tune", runtime=unique, kind="TrainingRuntime", trainer={"image": "acme/trainer"})
    )
    client.wait_until_ended(unique)
    end = client.get_pod(unique).status.container_statuses[0].state.terminated
    assert (end.exit_code, end.reason) == (128, "StartError")
    assert end.message.startswith("the environment /nowhere for images that match 'acme/trainer' has no folder bin")
    assert ("Pod", "Failed", f"Error: {end.message}") in client.list_events(name_prefix=unique)
