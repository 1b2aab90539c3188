"""The claim that TorchTune's steps share: what it is called, whom it belongs to, how long it lives."""

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
    """What the event about the TrainJob `job` says, which has no JobSet; up to 2.2 it names no reason."""
    event = wait_for_warning(client, namespace, "job", "TrainJobResourcesCreationFailed")
    assert client.find("JobSet", namespace, "job") is None
    said = event["message"].removeprefix("TrainJob resources reconciliation failed: ")
    if target.trainer >= (2, 3):
        return said
    assert said == "unknown (patch jobsets.jobset.x-k8s.io job)"
    return ""


def assert_jobset_refused(client, namespace, target, reason):
    """There is no JobSet, for this reason."""
    said = read_creation_failure(client, namespace, target)
    assert said == (DENIED + reason if target.trainer >= (2, 3) else "")


def read_volumes(jobset, step):
    """Claim by volume in a step's pods as the JobSet has them."""
    return {
        one["name"]: one["persistentVolumeClaim"]["claimName"] for one in find_pod_spec(jobset, step).get("volumes", [])
    }


def unscheduled_reasons(pod):
    """Why a pod has no node yet."""
    rows = (pod.get("status") or {}).get("conditions") or []
    return [row["message"] for row in rows if row["type"] == "PodScheduled" and row["status"] == "False"]


def read_mounts(jobset, step):
    return {one["mountPath"]: one["name"] for one in find_container(jobset, step)["volumeMounts"]}


@pytest.mark.since("2.2")
def test_while_suspended(client, namespace):
    """The claim `initializer-NAME` is there as soon as the JobSet, suspended or not: RWO, 20Gi, the JobSet's own."""
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
def test_life(client, namespace):
    """All steps share the claim; it outlives the training and goes with the TrainJob; the name can be used again."""
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
def test_deadline(client, namespace):
    """The claim goes when the deadline is over, with everything on it."""
    slow = create_scripted_runtime(client, namespace, {"dataset-initializer": "exec sleep 600"})
    client.create(train_job(activeDeadlineSeconds=1, suspend=True, **slow), namespace)
    client.wait_for("PersistentVolumeClaim", namespace, "initializer-job", bool)
    client.patch("TrainJob", namespace, "job", {"spec": {"suspend": False}})
    client.wait_for("TrainJob", namespace, "job", is_finished)
    client.wait_until_deleted("PersistentVolumeClaim", namespace, "initializer-job")
    assert client.get("TrainJob", namespace, "job")["status"]["conditions"][-1]["reason"] == "DeadlineExceeded"


@pytest.mark.since("2.2")
def test_retained(client, namespace, target):
    """With Retain in the runtime the claim belongs to nobody and stays; then the name can't be used again."""
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
def test_taken(client, namespace, target):
    """A claim of another's that has the name is never used: there is no JobSet, an event says why, no status does."""
    client.create(claim("initializer-job", "20Gi"), namespace)
    client.create(train_job(runtime=LLAMA), namespace)
    other = f"{FIELD}.template[0].spec: Invalid value: {SPEC}: spec does not match existing PVC initializer-job"
    kept = f'{FIELD}.retentionPolicy.whenDeleted: Invalid value: "Delete": retentionPolicy must be retain when PVC'
    assert_jobset_refused(client, namespace, target, f"[{other} in namespace {namespace}, {kept} exists]")
    assert not client.get("TrainJob", namespace, "job").get("status")


@pytest.mark.since("2.2")
def test_a_volume_of_the_same_name(client, namespace, target):
    """A patch with a volume called `initializer` is accepted, but there is never a JobSet."""
    client.create(train_job(runtime=LLAMA, **mount_patch(target.trainer, "initializer", "/data")), namespace)
    field = "spec.replicatedJobs[2].template.spec.template.spec.volumes[0].name"
    reason = "volume name conflicts with VolumeClaimPolicy template name: initializer"
    assert_jobset_refused(client, namespace, target, f'{field}: Invalid value: "initializer": {reason}')


@pytest.mark.since("2.2")
def test_mounted_by_nobody(client, namespace, target):
    """Own volumes at /workspace in every step leave the claim unmounted: accepted, but there is never a JobSet."""
    client.create(train_job(runtime=LLAMA, **mount_patch(target.trainer, "mine", "/workspace", STEPS)), namespace)
    said = read_creation_failure(client, namespace, target)
    if said:  # cut to fit into an event, so that the reason itself is lost
        assert said.startswith(f'{DENIED}spec.replicatedJobs: Invalid value: [{{"name":"dataset-initializer",')
        assert (len(said), said[-4:]) == (954, " ...")


def test_own_output(client, namespace, target):
    """An own claim at /workspace/output lies next to the shared one, in the step that it is mounted in only."""
    job = train_job(runtime=LLAMA, **mount_patch(target.trainer, "mine", "/workspace/output"))
    jobset = create_jobsets(client, namespace, {"job": job})["job"]
    runtimes = {} if target.trainer >= (2, 2) else {"initializer": LLAMA}
    assert read_volumes(jobset, "node") == {"mine": "mine", **runtimes}
    assert read_mounts(jobset, "node") == {"/workspace/output": "mine", "/workspace": "initializer"}
    assert read_volumes(jobset, "model-initializer") == runtimes
    assert read_mounts(jobset, "model-initializer") == {"/workspace": "initializer"}


@pytest.mark.since("2.2")
def test_own_output_survives(client, namespace, target):
    """What the training writes to an own claim at /workspace/output stays when the TrainJob and its claim are gone."""
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


def test_own_workspace(client, namespace, target):
    """A volume mounted at /workspace takes the place of the step's own mount there."""
    job = train_job(runtime=LLAMA, **mount_patch(target.trainer, "mine", "/workspace"))
    jobset = create_jobsets(client, namespace, {"job": job})["job"]
    assert read_mounts(jobset, "node") == {"/workspace": "mine"}
    assert read_mounts(jobset, "dataset-initializer") == {"/workspace": "initializer"}
    # Up to 2.1 the volume stays in the pod, which so still waits for the runtime's claim.
    runtimes = {} if target.trainer >= (2, 2) else {"initializer": LLAMA}
    assert read_volumes(jobset, "node") == {"mine": "mine", **runtimes}


@pytest.mark.before("2.2")
def test_before_2_2(client, namespace):
    """Up to 2.1 the claim is called like the runtime and is the user's: pods wait for it, and it stays."""
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


def test_a_claim_that_is_not_there(client, namespace, target):
    """A pod whose claim does not exist is not scheduled; the TrainJob only shows an active Job."""
    client.create(train_job("true", **mount_patch(target.trainer, "mine", "/data")), namespace)
    (message,) = unscheduled_reasons(
        client.wait_for("Pod", namespace, "", unscheduled_reasons, labelSelector=f"{JOBSET}=job")
    )
    assert 'persistentvolumeclaim "mine" not found' in message
    answer = client.request("GET", path_of("TrainJob", namespace, "job"))
    assert "conditions" not in (answer.body.get("status") or {})
