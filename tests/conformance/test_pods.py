"""Names, labels, ranks, environment and owners of the objects that belong to a TrainJob."""

from __future__ import annotations

import re

import pytest

from tests.conformance.runtimes import create_own_runtime, replicated_job
from tests.support.trainjobs import IMAGE, counters, is_finished, list_pods, shell, train_job

STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
INDEX = "batch.kubernetes.io/job-completion-index"


def jobset_metadata(item, place="labels"):
    """Return the labels or annotations of a JobSet, without their prefix."""
    prefix = "jobset.sigs.k8s.io/"
    found = item["metadata"].get(place) or {}
    return {key.removeprefix(prefix): value for key, value in found.items() if key.startswith(prefix)}


def owner_of(item):
    (found,) = item["metadata"]["ownerReferences"]
    return found["kind"], found["name"], found["uid"], found["controller"], found["blockOwnerDeletion"]


@pytest.fixture
def pods_of_two_nodes(client, namespace):
    """Return the pods of a finished job with two nodes, by rank."""
    script = "echo $PET_NODE_RANK of $PET_NNODES, $JOB_COMPLETION_INDEX, $PET_NPROC_PER_NODE, $HOSTNAME"
    job = shell(script, trainer={"numNodes": 2, "numProcPerNode": 3})
    job["metadata"].update(labels={"team": "a"}, annotations={"note": "b"})
    client.create(job, namespace)
    client.wait_for("TrainJob", namespace, "job", is_finished)
    return {pod["metadata"]["labels"][INDEX]: pod for pod in list_pods(client, namespace)}


def test_names_and_ranks(pods_of_two_nodes):
    """A pod is named JOB-STEP-0-RANK-xxxxx, its host JOB-STEP-0-RANK in the subdomain JOB. A label has the rank."""
    assert sorted(pods_of_two_nodes) == ["0", "1"]
    for rank, pod in pods_of_two_nodes.items():
        assert re.fullmatch(rf"job-node-0-{rank}-[a-z0-9]{{5}}", pod["metadata"]["name"])
        assert pod["metadata"]["annotations"][INDEX] == rank
        assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == (f"job-node-0-{rank}", "job")
        assert [container["name"] for container in pod["spec"]["containers"]] == ["node"]


def test_environment_of_pods(client, namespace, pods_of_two_nodes):
    """Each pod has its rank, the number of nodes and of processes, and its host name in its environment."""
    logs = {rank: client.log(namespace, pod["metadata"]["name"]) for rank, pod in pods_of_two_nodes.items()}
    assert logs == {rank: f"{rank} of 2, {rank}, 3, job-node-0-{rank}\n" for rank in "01"}
    variables = {one["name"]: one for one in pods_of_two_nodes["1"]["spec"]["containers"][0]["env"]}
    assert variables["PET_MASTER_ADDR"]["value"] == "job-node-0-0.job"
    assert variables["PET_MASTER_PORT"]["value"] == "29500"
    rank = variables["PET_NODE_RANK"]["valueFrom"]["fieldRef"]
    assert rank == {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{INDEX}']"}
    index = variables["JOB_COMPLETION_INDEX"]["valueFrom"]["fieldRef"]
    assert index == {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}


def test_owners(client, namespace, pods_of_two_nodes):
    """TrainJob owns JobSet, JobSet owns Job and Service, Job owns pods. Each blocks its owner's foreground deletion."""
    job, jobset = client.get("TrainJob", namespace, "job"), client.get("JobSet", namespace, "job")
    batch_job = client.get("Job", namespace, "job-node-0")
    assert owner_of(jobset) == ("TrainJob", "job", job["metadata"]["uid"], True, True)
    assert owner_of(batch_job) == ("JobSet", "job", jobset["metadata"]["uid"], True, True)
    assert owner_of(client.get("Service", namespace, "job")) == ("JobSet", "job", jobset["metadata"]["uid"], True, True)
    for pod in pods_of_two_nodes.values():
        assert owner_of(pod) == ("Job", "job-node-0", batch_job["metadata"]["uid"], True, True)


def test_own_labels_are_not_inherited(client, namespace, pods_of_two_nodes):
    """A TrainJob's own labels and annotations are not on its JobSet, Jobs and pods."""
    made = [
        client.get("JobSet", namespace, "job"),
        client.get("Job", namespace, "job-node-0"),
        *pods_of_two_nodes.values(),
    ]
    for item in made:
        assert "team" not in (item["metadata"].get("labels") or {})
        assert "note" not in (item["metadata"].get("annotations") or {})


def test_labels_of_jobs_and_pods(client, namespace):
    """Jobs and pods have the JobSet's labels, also as annotations. Only the Job has a label for the step's role."""
    steps = [replicated_job("dataset-initializer"), replicated_job("node", depends_on=["dataset-initializer"])]
    client.create(train_job(**create_own_runtime(client, namespace, *steps)), namespace)
    client.wait_for("TrainJob", namespace, "job", is_finished)
    uid = client.get("JobSet", namespace, "job")["metadata"]["uid"]
    pods = {pod["metadata"]["labels"]["batch.kubernetes.io/job-name"]: pod for pod in list_pods(client, namespace)}
    for number, (name, role) in enumerate([("dataset-initializer", "dataset-initializer"), ("node", "trainer")]):
        job = client.get("Job", namespace, f"job-{name}-0")
        marks = jobset_metadata(job)
        expected = {
            "jobset-name": "job",
            "jobset-uid": uid,
            "replicatedjob-name": name,
            "replicatedjob-replicas": "1",
            "restart-attempt": "0",
            "job-index": "0",
            "job-global-index": str(number),
            "global-replicas": "2",
        }
        assert {key: marks.get(key) for key in expected} == expected
        assert re.fullmatch("[0-9a-f]{40}", marks["job-key"])
        pod = pods[f"job-{name}-0"]
        for item, place in ((job, "annotations"), (pod, "labels"), (pod, "annotations")):
            assert jobset_metadata(item, place).items() >= marks.items()
        assert job["metadata"]["labels"][STEP] == role
        assert STEP not in pod["metadata"]["labels"]
        assert pod["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] == job["metadata"]["uid"]


def test_headless_service(client, namespace):
    """A headless Service with the job's name selects its pods, ready or not."""
    client.create(shell("true", suspend=True), namespace)
    client.wait_for("TrainJob", namespace, "job", lambda job: counters(job).get("node", {}).get("suspended"))
    spec = client.get("Service", namespace, "job")["spec"]
    assert spec["clusterIP"] == "None"
    assert spec["selector"] == {"jobset.sigs.k8s.io/jobset-name": "job"}
    assert spec["publishNotReadyAddresses"] is True


def test_another_scheduler(client, namespace):
    """The default scheduler ignores a pod that names another scheduler."""
    for name, scheduler in (("other", {"schedulerName": "nobody"}), ("own", {})):
        spec = {"containers": [{"name": "c", "image": IMAGE, "command": ["true"]}], **scheduler}
        client.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}, namespace)
    client.wait_for("Pod", namespace, "own", lambda pod: pod["spec"].get("nodeName"))
    other = client.get("Pod", namespace, "other")
    assert "nodeName" not in other["spec"]
    assert other["status"]["phase"] == "Pending" and not other["status"].get("conditions")
