"""Checks of a runtime before a TrainJob is created, and the runtimes with a workspace of `manifests/runtimes`."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.conformance.built_jobsets import create_jobsets, find_container, find_pod_spec
from tests.conformance.runtimes import create_runtime, replicated_job
from tests.conformance.test_every_manifest import build_manifest, dry_run
from tests.support.code_blocks import ALL_BLOCKS
from tests.support.kubernetes_client import path_of
from tests.support.trainjobs import pod_patch, train_job
from trainjob import (
    BuiltinTrainer,
    CustomTrainerContainer,
    FineTune,
    RunKey,
    Runtime,
    TorchTuneConfig,
    TrainJob,
    submit,
)
from trainjob.errors import InvalidSpec
from trainjob.lifecycle.runtime_checks import find_problems
from trainjob.status.runtime_description import describe_runtime

FOLDER = Path(__file__).resolve().parents[2] / "manifests" / "runtimes"
WORKSPACE_RUNTIMES = {file.stem: yaml.safe_load(file.read_text()) for file in sorted(FOLDER.glob("workspace-*.yaml"))}
INITIALIZERS = ("dataset-initializer", "model-initializer")


def test_stock_runtime_descriptions(cluster):
    """The client reads name, framework, plugin, steps and devices of the stock runtimes correctly."""
    found = {one.name: one for one in cluster.runtimes.list_all("ClusterTrainingRuntime", cluster.namespace)}
    torch, tune = found["torch-distributed"], found["torchtune-llama3.2-1b"]
    assert cluster.runtimes.find("torch-distributed", "ClusterTrainingRuntime", "") == torch
    assert (torch.framework, torch.policy, torch.initializers) == ("torch", "torch", ())
    assert (tune.framework, tune.policy, tune.initializers) == ("torchtune", "torch", INITIALIZERS)
    assert tune.trainer.resources == {"nvidia.com/gpu": "2"}
    assert not any(one.deprecated or one.gang or one.num_nodes != 1 for one in found.values())
    assert all(one.trainer and "node" in one.trainer.containers for one in found.values())


def test_missing_runtime(cluster, unique, record_feature):
    """A TrainJob whose runtime does not exist is not sent. The error lists the existing runtimes."""
    request = TrainJob(trainer=CustomTrainerContainer(command=("true",)), runtime="torch-distribted")
    with pytest.raises(InvalidSpec, match=r"did you mean torch-distributed\? \(there are torch-distributed, "):
        submit(cluster, request, RunKey("conformance", "runtimes", unique, "run-1"))
    assert cluster.list_trainjobs(cluster.namespace, "") == []
    record_feature("runtimes")


@pytest.mark.parametrize("mismatch", ["framework", "no trainer", "other step"])
def test_jobs_that_do_not_fit_their_runtime(client, namespace, target, mismatch):
    """The project rejects a TrainJob that does not fit its runtime, because the API server accepts most of them."""
    job = replicated_job("solo" if mismatch == "other step" else "node")
    if mismatch != "framework":
        del job["template"]["metadata"]
    name = "own-llama3.2-1b" if mismatch == "framework" else "own"
    spec = {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": {"replicatedJobs": [job]}}}
    create_runtime(client, namespace, spec, name)
    runtime = Runtime(name=name, kind="TrainingRuntime")
    request = {
        "framework": lambda: TrainJob(trainer=BuiltinTrainer(config=TorchTuneConfig()), runtime=runtime),
        "no trainer": lambda: TrainJob(trainer=CustomTrainerContainer(command=("true",)), runtime=runtime),
        "other step": lambda: TrainJob(workspace="claim", runtime=runtime),
    }[mismatch]()
    item = build_manifest(request, namespace, target)
    known = client.get("TrainingRuntime", namespace, name)
    assert list(find_problems(request, item, describe_runtime(known, "TrainingRuntime")))
    assert dry_run(client, namespace, item).ok == (mismatch != "other step" or target.trainer >= (2, 3))


def test_sidecars_of_a_runtime(client, namespace, target, record_feature):
    """A TrainJob on the runtime with a sidecar that the page describes changes only the container `node`."""
    block = next(one for one in ALL_BLOCKS if one.page == "docs/reference/runtimes.md" and "name: proxy" in one.text)
    given = yaml.safe_load(block.text)
    client.create(given, namespace)
    request = TrainJob(
        trainer=CustomTrainerContainer(image="registry.example.com/train:7", command=("true",)),
        runtime=Runtime(name="torch-with-proxy", kind="TrainingRuntime"),
        workspace="data",
    )
    job = build_manifest(request, namespace, target)
    assert list(find_problems(request, job, describe_runtime(given, "TrainingRuntime"))) == []
    jobset = create_jobsets(client, namespace, {"job": job})["job"]
    proxy, waiting = find_pod_spec(jobset)["initContainers"]
    assert (proxy["name"], proxy["restartPolicy"], proxy.get("volumeMounts")) == ("proxy", "Always", None)
    assert (waiting["name"], waiting.get("volumeMounts")) == ("wait-for-proxy", None)
    node = find_container(jobset)
    assert (node["image"], node["command"]) == ("registry.example.com/train:7", ["true"])
    assert node["volumeMounts"] == [{"name": "workspace", "mountPath": "/workspace"}]
    record_feature("runtimes")


def test_containers_of_a_trainjob(client, namespace, target):
    """A TrainJob cannot add a container with an image of its own: the API server refuses the field in a patch."""
    pod = {"containers": [{"name": "proxy", "image": "registry.example.com/proxy:1.4"}]}
    answer = dry_run(client, namespace, train_job(**pod_patch(target.trainer, pod)))
    assert not answer.ok
    assert "containers[0].image" in answer.message


@pytest.mark.parametrize("name", WORKSPACE_RUNTIMES)
def test_runtimes_with_a_workspace(client, namespace, target, name, record_feature):
    """All steps of these runtimes mount the claim `workspace`. A TrainJob that was created suspended can resume."""
    given = WORKSPACE_RUNTIMES[name]
    assert client.request("POST", path_of("ClusterTrainingRuntime"), given, dryRun="All", fieldValidation="Strict").ok
    create_runtime(client, namespace, given["spec"], name)
    request = FineTune(
        model=name.partition("-")[2],
        config=TorchTuneConfig(resources_per_node={"gpu": 1}),
        dataset="hf://organization/name",
        model_initializer="hf://organization/name",
        runtime=Runtime(name=name, kind="TrainingRuntime"),
    )
    job = build_manifest(request, namespace, target)
    client.create({**job, "spec": {**job["spec"], "suspend": True}}, namespace)
    jobset = client.wait_for("JobSet", namespace, "job", bool)
    for step in (*INITIALIZERS, "node"):
        claims = [one["persistentVolumeClaim"]["claimName"] for one in find_pod_spec(jobset, step)["volumes"]]
        assert claims == ["workspace"]
        assert {"name": "initializer", "mountPath": "/workspace"} in find_container(jobset, step)["volumeMounts"]
    assert find_container(jobset)["command"][:3] == ["tune", "run", "full_finetune_single_device"]
    client.patch("TrainJob", namespace, "job", {"spec": {"suspend": False}})
    client.wait_for("JobSet", namespace, "job", lambda found: not found["spec"].get("suspend"))
    record_feature("runtimes")
