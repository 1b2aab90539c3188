"""The PersistentVolumeClaim that TorchTune's steps share: its name, its owner and its lifetime."""

from __future__ import annotations

import pytest

from tests.conformance.built_jobsets import (
    TORCHTUNE_RUNTIMES,
    claim,
    create_jobsets,
    create_scripted_runtime,
    find_container,
    find_pod_spec,
    mount_patch,
    wait_for_warning,
)
from tests.support.kubernetes_client import path_of
from tests.support.trainjobs import JOBSET, conditions, is_finished, list_pods, train_job

LLAMA = TORCHTUNE_RUNTIMES["llama3.2-1b"]
STEPS = ("dataset-initializer", "model-initializer", "node")
DENIED = 'admission webhook "vjobset.kb.io" denied the request: JobSet.jobset.x-k8s.io "job" is invalid: '
FIELD = "spec.volumeClaimPolicies[0]"
SPEC = '{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"20Gi"}}}'


def read_creation_failure(client, namespace, target):
    """Read the event that says why the TrainJob `job` has no JobSet.

    The message is empty up to Trainer 2.2.
    """
    event = wait_for_warning(client, namespace, "job", "TrainJobResourcesCreationFailed")
    assert client.find("JobSet", namespace, "job") is None
    message = event["message"].removeprefix("TrainJob resources reconciliation failed: ")
    if target.trainer >= (2, 3):
        return message
    assert message == "unknown (patch jobsets.jobset.x-k8s.io job)"
    return ""


def assert_jobset_refused(client, namespace, target, reason):
    """Check that there is no JobSet, for this reason."""
    message = read_creation_failure(client, namespace, target)
    assert message == (DENIED + reason if target.trainer >= (2, 3) else "")


def read_volumes(jobset, step):
    """Return the claim of each volume in a step's pod template of the JobSet."""
    return {
        one["name"]: one["persistentVolumeClaim"]["claimName"] for one in find_pod_spec(jobset, step).get("volumes", [])
    }


def unscheduled_reasons(pod):
    """Return the messages that explain why a pod is not scheduled."""
    rows = (pod.get("status") or {}).get("conditions") or []
    return [row["message"] for row in rows if row["type"] == "PodScheduled" and row["status"] == "False"]


def read_mounts(jobset, step):
    return {one["mountPath"]: one["name"] for one in find_container(jobset, step)["volumeMounts"]}


@pytest.mark.since("2.2")
def test_claim_of_a_suspended_job(client, namespace):
    """The claim `initializer-NAME` (ReadWriteOnce, 20Gi) is created with the JobSet, even if that is suspended."""
    jobset = create_jobsets(client, namespace, {"job": train_job(runtime=LLAMA)})["job"]
    found = client.wait_for("PersistentVolumeClaim", namespace, "initializer-job", bool)
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "job"}
    more = {"uid": jobset["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True}
    assert found["metadata"]["labels"] == {JOBSET: "job"}
    assert found["metadata"]["ownerReferences"] == [{**owner, **more}]
    assert found["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert found["spec"]["resources"] == {"requests": {"storage": "20Gi"}}
    assert (found["spec"]["volumeMode"], found["status"]["phase"]) == ("Filesystem", "Pending")
    job = client.wait_for("Job", namespace, "job-model-initializer-0", bool)
    pod = job["spec"]["template"]["spec"]
    assert pod["volumes"] == [{"name": "initializer", "persistentVolumeClaim": {"claimName": "initializer-job"}}]
    assert pod["containers"][0]["volumeMounts"] == [{"name": "initializer", "mountPath": "/workspace"}]


@pytest.mark.since("2.2")
def test_claim_lifetime(client, namespace):
    """All steps share one claim. It is deleted with the TrainJob, not at its end, and its name can be used again."""
    scripts = {
        "dataset-initializer": "mkdir /workspace/dataset && echo rows > /workspace/dataset/a",
        "model-initializer": "mkdir /workspace/model && echo weights > /workspace/model/a",
        "node": "cat /workspace/dataset/a /workspace/model/a",
    }
    job = train_job(**create_scripted_runtime(client, namespace, scripts))
    client.create(job, namespace)
    done = client.wait_for("TrainJob", namespace, "job", is_finished)
    assert [row[:2] for row in conditions(done)] == [("Complete", "True")]
    (node,) = client.list("Pod", namespace, labelSelector="jobset.sigs.k8s.io/replicatedjob-name=node")
    assert client.log(namespace, node["metadata"]["name"]).split() == ["rows", "weights"]
    assert client.get("PersistentVolumeClaim", namespace, "initializer-job")["status"]["phase"] == "Bound"
    client.delete("TrainJob", namespace, "job", propagationPolicy="Foreground")
    client.wait_until_deleted("TrainJob", namespace, "job")
    client.wait_until_deleted("PersistentVolumeClaim", namespace, "initializer-job")
    client.create(job, namespace)
    client.wait_for("PersistentVolumeClaim", namespace, "initializer-job", bool)


@pytest.mark.since("2.2")
def test_claim_is_deleted_at_the_deadline(client, namespace):
    """The claim and its data are deleted at the deadline."""
    slow = create_scripted_runtime(client, namespace, {"dataset-initializer": "exec sleep 600"})
    client.create(train_job(activeDeadlineSeconds=1, suspend=True, **slow), namespace)
    client.wait_for("PersistentVolumeClaim", namespace, "initializer-job", bool)
    client.patch("TrainJob", namespace, "job", {"spec": {"suspend": False}})
    client.wait_for("TrainJob", namespace, "job", is_finished)
    client.wait_until_deleted("PersistentVolumeClaim", namespace, "initializer-job")
    assert client.get("TrainJob", namespace, "job")["status"]["conditions"][-1]["reason"] == "DeadlineExceeded"


@pytest.mark.since("2.2")
def test_retained_claim(client, namespace, target):
    """With whenDeleted Retain, the claim has no owner and is kept. A new job with that name then gets no JobSet."""
    job = train_job(**create_scripted_runtime(client, namespace, {}, retain_claim=True))
    client.create(job, namespace)
    client.wait_for("TrainJob", namespace, "job", is_finished)
    client.delete("TrainJob", namespace, "job", propagationPolicy="Foreground")
    client.wait_until_deleted("TrainJob", namespace, "job")
    client.wait_until_deleted("JobSet", namespace, "job")
    kept = client.get("PersistentVolumeClaim", namespace, "initializer-job")
    assert "ownerReferences" not in kept["metadata"]
    assert "deletionTimestamp" not in kept["metadata"]
    client.create(job, namespace)
    expected = f"{FIELD}.template[0].spec: Invalid value: {SPEC}: spec does not match existing PVC initializer-job"
    assert_jobset_refused(client, namespace, target, f"{expected} in namespace {namespace}")


@pytest.mark.since("2.2")
def test_existing_claim_is_not_used(client, namespace, target):
    """An existing claim with the name is never used. There is no JobSet, and only an event has the reason."""
    client.create(claim("initializer-job", "20Gi"), namespace)
    client.create(train_job(runtime=LLAMA), namespace)
    other = f"{FIELD}.template[0].spec: Invalid value: {SPEC}: spec does not match existing PVC initializer-job"
    kept = f'{FIELD}.retentionPolicy.whenDeleted: Invalid value: "Delete": retentionPolicy must be retain when PVC'
    assert_jobset_refused(client, namespace, target, f"[{other} in namespace {namespace}, {kept} exists]")
    assert not client.get("TrainJob", namespace, "job").get("status")


@pytest.mark.since("2.2")
def test_a_volume_of_the_same_name(client, namespace, target):
    """A patch with a volume named `initializer` is accepted, but no JobSet is created."""
    client.create(train_job(runtime=LLAMA, **mount_patch(target.trainer, "initializer", "/data")), namespace)
    field = "spec.replicatedJobs[2].template.spec.template.spec.volumes[0].name"
    reason = "volume name conflicts with VolumeClaimPolicy template name: initializer"
    assert_jobset_refused(client, namespace, target, f'{field}: Invalid value: "initializer": {reason}')


@pytest.mark.since("2.2")
def test_claim_that_no_step_mounts(client, namespace, target):
    """If patches mount other volumes instead of the claim in every step, the TrainJob is accepted without a JobSet."""
    client.create(train_job(runtime=LLAMA, **mount_patch(target.trainer, "mine", "/workspace", STEPS)), namespace)
    message = read_creation_failure(client, namespace, target)
    if message:  # it is cut to fit into an event, so the reason itself is lost
        assert message.startswith(f'{DENIED}spec.replicatedJobs: Invalid value: [{{"name":"dataset-initializer",')
        assert (len(message), message[-4:]) == (954, " ...")


def test_own_claim_for_the_output(client, namespace, target):
    """An own claim at /workspace/output is mounted beside the shared one, only in the step that names it."""
    job = train_job(runtime=LLAMA, **mount_patch(target.trainer, "mine", "/workspace/output"))
    jobset = create_jobsets(client, namespace, {"job": job})["job"]
    runtimes = {} if target.trainer >= (2, 2) else {"initializer": LLAMA}
    assert read_volumes(jobset, "node") == {"mine": "mine", **runtimes}
    assert read_mounts(jobset, "node") == {"/workspace/output": "mine", "/workspace": "initializer"}
    assert read_volumes(jobset, "model-initializer") == runtimes
    assert read_mounts(jobset, "model-initializer") == {"/workspace": "initializer"}


@pytest.mark.since("2.2")
def test_own_claim_outlives_the_trainjob(client, namespace, target):
    """Files that the training writes to an own claim at /workspace/output outlive the TrainJob."""
    client.create(claim("mine"), namespace)
    scripts = {"model-initializer": "echo weights > /workspace/a", "node": "cp /workspace/a /workspace/output/b"}
    job = train_job(
        **create_scripted_runtime(client, namespace, scripts),
        **mount_patch(target.trainer, "mine", "/workspace/output"),
    )
    client.create(job, namespace)
    client.wait_for("TrainJob", namespace, "job", is_finished)
    client.delete("TrainJob", namespace, "job", propagationPolicy="Foreground")
    client.wait_until_deleted("TrainJob", namespace, "job")
    assert client.get("PersistentVolumeClaim", namespace, "mine")["status"]["phase"] == "Bound"
    reader = train_job("cat", "/data/b", name="reader", **mount_patch(target.trainer, "mine", "/data"))
    client.create(reader, namespace)
    client.wait_for("TrainJob", namespace, "reader", is_finished)
    (pod,) = list_pods(client, namespace, "reader")
    assert client.log(namespace, pod["metadata"]["name"]).strip() == "weights"


def test_own_claim_for_the_workspace(client, namespace, target):
    """A volume mounted at /workspace replaces the step's own mount."""
    job = train_job(runtime=LLAMA, **mount_patch(target.trainer, "mine", "/workspace"))
    jobset = create_jobsets(client, namespace, {"job": job})["job"]
    assert read_mounts(jobset, "node") == {"/workspace": "mine"}
    assert read_mounts(jobset, "dataset-initializer") == {"/workspace": "initializer"}
    # Up to 2.1 the volume stays in the pod, which therefore still waits for the runtime's claim.
    runtimes = {} if target.trainer >= (2, 2) else {"initializer": LLAMA}
    assert read_volumes(jobset, "node") == {"mine": "mine", **runtimes}


@pytest.mark.before("2.2")
def test_claim_before_2_2(client, namespace):
    """Up to 2.1 the claim has the runtime's name, and the user creates it. Pods wait for it, and it is kept."""
    client.create(train_job(**create_scripted_runtime(client, namespace, {"node": "ls /workspace"})), namespace)
    query = {"labelSelector": f"{JOBSET}=job"}
    (message,) = unscheduled_reasons(client.wait_for("Pod", namespace, "", unscheduled_reasons, **query))
    assert message.startswith(f'0/1 nodes are available: persistentvolumeclaim "{LLAMA}" not found.')
    assert client.list("PersistentVolumeClaim", namespace) == []
    client.create(claim(LLAMA), namespace)
    assert is_finished(client.wait_for("TrainJob", namespace, "job", is_finished))
    client.delete("TrainJob", namespace, "job", propagationPolicy="Foreground")
    client.wait_until_deleted("TrainJob", namespace, "job")
    kept = client.get("PersistentVolumeClaim", namespace, LLAMA)
    assert (kept["status"]["phase"], kept["metadata"].get("ownerReferences")) == ("Bound", None)


def test_missing_claim(client, namespace, target):
    """A pod whose claim does not exist is not scheduled. The TrainJob only shows an active Job."""
    client.create(train_job("true", **mount_patch(target.trainer, "mine", "/data")), namespace)
    (message,) = unscheduled_reasons(
        client.wait_for("Pod", namespace, "", unscheduled_reasons, labelSelector=f"{JOBSET}=job")
    )
    assert 'persistentvolumeclaim "mine" not found' in message
    response = client.request("GET", path_of("TrainJob", namespace, "job"))
    assert "conditions" not in (response.body.get("status") or {})
