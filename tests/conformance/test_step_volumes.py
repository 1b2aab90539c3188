"""Workspaces and volumes of steps: their effect on the pods, and the files that a program finds."""

from __future__ import annotations

import base64
from contextlib import closing

import pytest

from control_plane import ControlPlane
from tests.conformance.built_jobsets import (
    TORCHTUNE_RUNTIMES,
    claim,
    create_jobsets,
    find_container,
    find_pod_spec,
    wait_for_warning,
)
from tests.conformance.request_matrix import ALL_VOLUMES, VOLUME_SOURCES, WORKSPACES
from tests.conformance.runtimes import create_runtime
from tests.conformance.test_every_manifest import build_manifest
from tests.support.kubernetes_client import Client, path_of
from tests.support.trainjobs import IMAGE, JOBSET, conditions, is_finished, list_pods
from trainjob import (
    CustomTrainerContainer,
    FineTune,
    InitializeDataset,
    InitializeModel,
    Runtime,
    TrainJob,
    Volume,
    WorkspaceVolume,
)
from trainjob.errors import CommandFailed
from trainjob.lifecycle import RunKey, submit, wait

SCRATCH = {"emptyDir": {}}


def shell(script, **fields):
    return TrainJob(trainer=CustomTrainerContainer(image=IMAGE, command=("sh", "-c", script)), **fields)


def read_mounts(jobset, step="node"):
    return {one["mountPath"]: one for one in find_container(jobset, step)["volumeMounts"]}


@pytest.mark.since("2.0")
def test_a_volume_of_each_kind(client, namespace, target):
    """Volumes of every kind, their mounts, and every kind of workspace are in the pods of a created Job."""
    requests = {name: shell("true", workspace=workspace, volumes=ALL_VOLUMES) for name, workspace in WORKSPACES.items()}
    jobs = {name: build_manifest(request, namespace, target, name) for name, request in requests.items()}
    for name, jobset in create_jobsets(client, namespace, jobs).items():
        pod = client.wait_for("Job", namespace, f"{name}-node-0", bool)["spec"]["template"]["spec"]
        found = {one["name"]: one for one in pod["volumes"]}
        assert {kind: set(found[kind]) - {"name"} for kind in VOLUME_SOURCES} == {
            kind: set(source) for kind, source in VOLUME_SOURCES.items()
        }
        for volume in ALL_VOLUMES:
            more = {"readOnly": True} if volume.read_only else {}
            assert read_mounts(jobset)[volume.mount_path] == {
                "name": volume.name,
                "mountPath": volume.mount_path,
                **more,
            }
        workspace = requests[name].workspace
        more = {"subPath": workspace.sub_path} if workspace.sub_path else {}
        assert read_mounts(jobset)["/workspace"] == {"name": "workspace", "mountPath": "/workspace", **more}
        claim_source = {"persistentVolumeClaim": {"claimName": workspace.claim}}
        folder_source = {"hostPath": {"path": workspace.node_path, "type": "Directory"}}
        source = claim_source if workspace.claim else folder_source
        assert found["workspace"] == {"name": "workspace", **source}


def test_volumes_of_a_run_with_initializers(client, namespace, target):
    """A run with initializers has its volumes in both initializers and the training, beside the shared volume."""
    spec = client.get("ClusterTrainingRuntime", None, TORCHTUNE_RUNTIMES["llama3.2-1b"])["spec"]
    create_runtime(client, namespace, spec, "mine-llama3.2-1b")
    runtime = Runtime(name="mine-llama3.2-1b", kind="TrainingRuntime")
    output = Volume(name="output", source={"persistentVolumeClaim": {"claimName": "c"}}, mount_path="/workspace/output")
    sources = {"dataset": "hf://o/n", "model_initializer": "hf://o/n"}
    request = FineTune(
        model="llama3.2-1b", config={"framework": "torchtune"}, runtime=runtime, volumes=[output], **sources
    )
    jobset = create_jobsets(client, namespace, {"job": build_manifest(request, namespace, target)})["job"]
    for step in ("dataset-initializer", "model-initializer", "node"):
        assert {"name": "output", **output.source} in find_pod_spec(jobset, step)["volumes"]
        assert {path: one["name"] for path, one in read_mounts(jobset, step).items()} == {
            "/workspace": "initializer",
            "/workspace/output": "output",
        }


IMAGE_URI = "oci://registry.example/acme/tiny:v1"


@pytest.mark.since("2.0")
def test_sources_of_a_fetch(client, namespace, target):
    """The pod of a fetch has its workspace, and the claim or the image with the files, which is read-only."""
    sources = {
        "claim": ("pvc://data/rows", {"persistentVolumeClaim": {"claimName": "data"}}),
        "image": (IMAGE_URI, {"image": {"reference": IMAGE_URI.removeprefix("oci://"), "pullPolicy": "IfNotPresent"}}),
    }
    requests = {name: InitializeModel(storage_uri=uri, workspace="mine") for name, (uri, _) in sources.items()}
    jobs = {name: build_manifest(request, namespace, target, name) for name, request in requests.items()}
    for name, jobset in create_jobsets(client, namespace, jobs).items():
        pod = client.wait_for("Job", namespace, f"{name}-node-0", bool)["spec"]["template"]["spec"]
        volumes = {one["name"]: one for one in pod["volumes"]}
        found = {
            kind: {**source, **volumes["trainjob-source"].get(kind, {})} for kind, source in sources[name][1].items()
        }
        assert found == sources[name][1]
        assert volumes["workspace"]["persistentVolumeClaim"] == {"claimName": "mine"}
        assert read_mounts(jobset)["/workspace"]["name"] == "workspace"
        assert read_mounts(jobset)["/mnt/trainjob-source"] == {
            "name": "trainjob-source",
            "mountPath": "/mnt/trainjob-source",
            "readOnly": True,
        }


def test_a_fetch_from_its_own_claim(client, namespace, target):
    """The pod of a fetch from another folder of its workspace's claim has one volume with two mounts."""
    request = InitializeModel(storage_uri="pvc://mine/shared", workspace=WorkspaceVolume(claim="mine", sub_path="a"))
    jobset = create_jobsets(client, namespace, {"job": build_manifest(request, namespace, target)})["job"]
    assert [one["name"] for one in find_pod_spec(jobset)["volumes"]].count("workspace") == 1
    assert {
        path: (one["name"], one.get("subPath"), one.get("readOnly")) for path, one in read_mounts(jobset).items()
    } == {
        "/workspace": ("workspace", "a", None),
        "/mnt/trainjob-source": ("workspace", None, True),
    }


def read_complete_log(client, namespace, name):
    """Return the log of the only pod of a TrainJob, when the TrainJob is Complete."""
    done = client.wait_for("TrainJob", namespace, name, is_finished)
    assert [row[:2] for row in conditions(done)] == [("Complete", "True")]
    (pod,) = list_pods(client, namespace, name)
    return client.log(namespace, pod["metadata"]["name"])


def test_files_of_a_program(client, namespace, target):
    """A program finds a Secret's files, an empty folder at two paths, and a claim's folder that is kept."""
    client.create(claim("mine"), namespace)
    keys = {"word": b"swordfish\n", "bytes": bytes(range(256))}
    data = {name: base64.b64encode(value).decode() for name, value in keys.items()}
    client.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": data}, namespace)
    volumes = (
        Volume(name="keys", source={"secret": {"secretName": "s"}}, mount_path="/keys", read_only=True),
        Volume(name="scratch", source=SCRATCH, mount_path="/scratch"),
        Volume(name="scratch", source=SCRATCH, mount_path="/again"),
        Volume(name="word", source={"secret": {"secretName": "s"}}, mount_path="/one/word", sub_path="word"),
    )
    script = "cat /keys/word /one/word > /scratch/words && wc -c < /keys/bytes && cp /again/words /workspace/words"
    writing = shell(script, workspace=WorkspaceVolume(claim="mine", sub_path="team/a"), volumes=volumes)
    client.create(build_manifest(writing, namespace, target, "writing"), namespace)
    assert read_complete_log(client, namespace, "writing").split() == ["256"]
    reading = shell("cat /workspace/team/a/words", workspace="mine")
    client.create(build_manifest(reading, namespace, target, "reading"), namespace)
    assert read_complete_log(client, namespace, "reading").split() == ["swordfish", "swordfish"]


@pytest.mark.only("laptop", "controlplane")
def test_a_folder_of_the_node(client, namespace, target, tmp_path):
    """A folder of the node can be the workspace. A pod whose folder is missing waits, and an event has the reason."""
    existing = shell("echo rows > /workspace/file", workspace=WorkspaceVolume(node_path=str(tmp_path), sub_path="a"))
    missing = tmp_path / "missing"
    waiting = shell("true", workspace=WorkspaceVolume(node_path=str(missing)))
    for name, request in {"existing": existing, "waiting": waiting}.items():
        client.create(build_manifest(request, namespace, target, name), namespace)
    read_complete_log(client, namespace, "existing")
    assert (tmp_path / "a" / "file").read_text() == "rows\n"
    pod = client.wait_for("Pod", namespace, "", bool, labelSelector=f"{JOBSET}=waiting")
    event = wait_for_warning(client, namespace, pod["metadata"]["name"], "FailedMount")
    assert f"hostPath type check failed: {missing} is not a directory" in event["message"]
    missing.mkdir()
    read_complete_log(client, namespace, "waiting")


@pytest.mark.only("laptop", "controlplane")
@pytest.mark.parametrize("workspace", [WorkspaceVolume(claim="mine"), WorkspaceVolume(claim="data", sub_path="a")])
def test_a_fetch_from_a_claim(client, namespace, target, workspace):
    """Files of a claim, with symbolic links between its folders, are copied into the workspace."""
    for name in ("mine", "data"):
        client.create(claim(name), namespace)
    script = "cd /data && mkdir -p blobs snapshot && echo rows > blobs/b && ln -s ../blobs/b snapshot/train.jsonl"
    source = Volume(name="data", source={"persistentVolumeClaim": {"claimName": "data"}}, mount_path="/data")
    client.create(build_manifest(shell(script, volumes=[source]), namespace, target, "writing"), namespace)
    read_complete_log(client, namespace, "writing")
    request = InitializeDataset(storage_uri="pvc://data/snapshot", workspace=workspace)
    for name, fetched in {"first": 1, "again": 0}.items():
        client.create(build_manifest(request, namespace, target, name), namespace)
        assert f'"files": 1, "bytes": 5, "fetched": {fetched}}}' in read_complete_log(client, namespace, name)
    reading = shell(
        "cat /workspace/dataset/train.jsonl && ! test -L /workspace/dataset/train.jsonl", workspace=workspace
    )
    client.create(build_manifest(reading, namespace, target, "reading"), namespace)
    assert read_complete_log(client, namespace, "reading") == "rows\n"


@pytest.mark.only("laptop", "controlplane")
def test_a_fetch_from_an_image_that_is_not_mounted(client, cluster, namespace, unique):
    """A kubelet without image volumes runs the pod without them, and the fetch ends with the reason."""
    client.create(claim("mine"), namespace)
    request = InitializeModel(storage_uri=IMAGE_URI, workspace="mine")
    outcome = wait(cluster, submit(cluster, request, RunKey("test", "volumes", unique, "run")))
    with pytest.raises(CommandFailed, match=f"{IMAGE_URI} is not mounted in this pod") as failed:
        outcome.raise_for_failure()
    assert "image volumes need Kubernetes 1.35, or 1.33 with the feature gate ImageVolume" in str(failed.value)


@pytest.mark.only("controlplane-2.3")
@pytest.mark.parametrize(("version", "kept"), [("1.34", False), ("1.35", True)])
def test_image_volumes_of_an_older_api_server(tmp_path, version, kept):
    """An API server before 1.35 accepts a Job with an image volume, and drops the volume and its mounts silently."""
    volume = {"name": "v", "image": {"reference": "registry.example/acme/tiny:v1"}}
    container = {"name": "node", "image": "x", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container], "volumes": [volume]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template}}
    with (
        ControlPlane(tmp_path, apiserver_args=[f"--emulated-version={version}"]) as server,
        closing(Client.from_kubeconfig(str(server.kubeconfig))) as client,
    ):
        accepted = client.request("POST", path_of("Job", "default"), job, fieldValidation="Strict", dryRun="All")
    assert accepted.code == 201
    pod = accepted.body["spec"]["template"]["spec"]
    assert [one["name"] for one in pod.get("volumes", [])] == ["v"] * kept
    assert [one["name"] for one in pod["containers"][0].get("volumeMounts", [])] == ["v"] * kept
