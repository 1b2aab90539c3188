"""Dataset and model initializers of a runtime: their variables, Secrets, order and failures."""

from __future__ import annotations

import pytest

from tests.conformance.built_jobsets import (
    TORCHTUNE_RUNTIMES,
    create_jobsets,
    create_scripted_runtime,
    find_container,
    find_replicated_job,
    read_environment,
)
from tests.conformance.runtimes import create_runtime
from tests.support.kubernetes_client import path_of
from tests.support.trainjobs import conditions, counters, is_finished, train_job

LLAMA, QWEN = TORCHTUNE_RUNTIMES["llama3.2-1b"], TORCHTUNE_RUNTIMES["qwen2.5-1.5b"]
DATASET, MODEL = "dataset-initializer", "model-initializer"
DENIED = 'admission webhook "validator.trainjob.trainer.kubeflow.org" denied the request: '
REPLICATED = "jobset.sigs.k8s.io/replicatedjob-name"


def read_variables(jobset, step):
    return list(read_environment(find_container(jobset, step)).items())


def test_default_sources(client, namespace):
    """An initializer without a storageUri fetches the runtime's own dataset or model."""
    jobs = {
        "neither": train_job(runtime=LLAMA),
        "dataset": train_job(runtime=LLAMA, initializer={"dataset": {"storageUri": "hf://a/b"}}),
        "model": train_job(runtime=QWEN, initializer={"model": {"storageUri": "s3://a/b"}}),
        "nothing": train_job(
            runtime=QWEN, initializer={"dataset": {}, "model": {"env": [{"name": "A", "value": "1"}]}}
        ),
    }
    found = create_jobsets(client, namespace, jobs)
    default = ("STORAGE_URI", "hf://tatsu-lab/alpaca")
    llama = ("STORAGE_URI", "hf://meta-llama/Llama-3.2-1B-Instruct")
    qwen = ("STORAGE_URI", "hf://Qwen/Qwen2.5-1.5B-Instruct")
    assert {name: [read_variables(one, step) for step in (DATASET, MODEL)] for name, one in found.items()} == {
        "neither": [[default], [llama]],
        "dataset": [[("STORAGE_URI", "hf://a/b")], [llama]],
        "model": [[default], [("STORAGE_URI", "s3://a/b")]],
        "nothing": [[default], [qwen, ("A", "1")]],
    }


def test_variables(client, namespace):
    """storageUri replaces the runtime's STORAGE_URI in place. The initializer's own variables can replace it again."""
    secret = {"secretKeyRef": {"name": "hf", "key": "token", "optional": True}}
    env = [{"name": "REGION", "value": "r"}, {"name": "ACCESS_TOKEN", "valueFrom": secret}, {"name": "B", "value": ""}]
    other = [{"name": "A", "value": "1"}, {"name": "STORAGE_URI", "value": "hf://y/y"}]
    initializer = {
        "dataset": {"storageUri": "s3://bucket/path", "env": env, "secretRef": {"name": "keys"}},
        "model": {"storageUri": "hf://x/x", "env": other},
    }
    jobset = create_jobsets(client, namespace, {"job": train_job(runtime=LLAMA, initializer=initializer)})["job"]
    expected = [("STORAGE_URI", "s3://bucket/path"), ("REGION", "r"), ("ACCESS_TOKEN", secret)]
    assert read_variables(jobset, DATASET)[:3] == expected
    assert [name for name, _ in read_variables(jobset, DATASET)[3:]] == ["B"]
    assert read_variables(jobset, MODEL) == [("STORAGE_URI", "hf://y/y"), ("A", "1")]
    assert find_container(jobset, DATASET)["envFrom"] == [{"secretRef": {"name": "keys"}}]
    assert "envFrom" not in find_container(jobset, MODEL)
    assert "env" not in find_container(jobset)


def test_order(client, namespace):
    """Both initializers start at once, each in its own Job. The training starts when both are complete."""
    jobset = create_jobsets(client, namespace, {"job": train_job(runtime=LLAMA, trainer={"numNodes": 1})})["job"]
    order = {one["name"]: one.get("dependsOn") for one in jobset["spec"]["replicatedJobs"]}
    complete = [{"name": DATASET, "status": "Complete"}, {"name": MODEL, "status": "Complete"}]
    assert list(order.items()) == [(DATASET, None), (MODEL, None), ("node", complete)]
    for step in (DATASET, MODEL):
        spec = find_replicated_job(jobset, step)["template"]["spec"]
        assert (find_replicated_job(jobset, step)["replicas"], spec["parallelism"], spec["completions"]) == (1, 1, 1)
    client.wait_for("Job", namespace, "job-dataset-initializer-0", bool)
    client.wait_for("Job", namespace, "job-model-initializer-0", bool)
    assert client.find("Job", namespace, "job-node-0") is None
    labels = client.get("Job", namespace, "job-dataset-initializer-0")["metadata"]["labels"]
    assert labels["trainer.kubeflow.org/trainjob-ancestor-step"] == DATASET


@pytest.mark.since("2.2")
def test_environment_and_files_of_the_processes(client, namespace):
    """An initializer's process has the URI and the keys of its Secret, and writes to the training's volume."""
    scripts = {
        DATASET: "echo $STORAGE_URI $ACCESS_TOKEN $REGION > /workspace/seen",
        MODEL: "echo $STORAGE_URI ${ACCESS_TOKEN:-none} > /workspace/model-seen",
        "node": "cat /workspace/seen /workspace/model-seen",
    }
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}}
    client.create({**secret, "stringData": {"ACCESS_TOKEN": "from-secret", "REGION": "from-secret"}}, namespace)
    env = [{"name": "REGION", "value": "from-env"}]
    dataset = {"storageUri": "s3://bucket/path", "secretRef": {"name": "keys"}, "env": env}
    client.create(
        train_job(initializer={"dataset": dataset}, **create_scripted_runtime(client, namespace, scripts)), namespace
    )
    history = []
    for _, job in client.list_and_watch("TrainJob", namespace, "job"):
        history.append(counters(job))
        if is_finished(job):
            break
    assert [row[:2] for row in conditions(job)] == [("Complete", "True")]
    (node,) = client.list("Pod", namespace, labelSelector=f"{REPLICATED}=node")
    lines = client.log(namespace, node["metadata"]["name"]).splitlines()
    assert lines == ["s3://bucket/path from-secret from-env", "hf://meta-llama/Llama-3.2-1B-Instruct none"]
    started = next(seen for seen in history if seen.get("node"))
    assert started[DATASET] == started[MODEL] == {"succeeded": 1}


def dry_run(client, namespace, job):
    response = client.request("POST", path_of("TrainJob", namespace), job, fieldValidation="Strict", dryRun="All")
    return response.code, "" if response.ok else response.message.removeprefix(DENIED)


def test_runtimes_without_initializers(client, namespace):
    """A dataset or a model on a runtime without initializers is rejected with the reason."""
    ref = '{"name":"torch-distributed","apiGroup":"trainer.kubeflow.org","kind":"ClusterTrainingRuntime"}'
    text = f"spec.runtimeRef: Invalid value: {ref}: must have "
    dataset = f"{text}{DATASET} job when trainJob is configured with input datasetConfig"
    model = f"{text}{MODEL} job when trainJob is configured with input modelConfig"
    both = {"dataset": {"storageUri": "hf://a/b"}, "model": {}}
    assert dry_run(client, namespace, train_job(initializer={"dataset": {}})) == (403, dataset)
    assert dry_run(client, namespace, train_job(initializer={"model": {}})) == (403, model)
    assert dry_run(client, namespace, train_job(initializer=both)) == (403, f"[{dataset}, {model}]")
    assert dry_run(client, namespace, train_job(initializer={})) == (201, "")


def runtime_without(client, missing):
    """Return the spec of a runtime whose initializers lack a mount or the container's name."""
    spec = client.get("ClusterTrainingRuntime", None, LLAMA)["spec"]
    spec["template"]["spec"].pop("volumeClaimPolicies", None)
    for job in spec["template"]["spec"]["replicatedJobs"]:
        (one,) = job["template"]["spec"]["template"]["spec"]["containers"]
        if missing == "mount":
            one.pop("volumeMounts")
        elif job["name"] != "node":
            one["name"] = f"my-{one['name']}"
    return spec


@pytest.mark.parametrize(
    ("missing", "since", "text"),
    [
        ("container", (2, 0), f"must have container with name - {DATASET} in the {DATASET} job"),
        (
            "mount",
            (2, 3),
            f"must have volumeMount with name - initializer in container {DATASET} of the {DATASET} job",
        ),
    ],
)
def test_runtimes_with_incomplete_initializers(client, namespace, target, missing, since, text):
    """A dataset needs a container with the initializer's name, and since 2.3 a mount of the volume `initializer`."""
    spec = runtime_without(client, missing)
    for job in spec["template"]["spec"]["replicatedJobs"][:2]:
        del job["template"]["metadata"]  # the label by which the runtime's own webhook finds its steps
    runtime = create_runtime(client, namespace, spec)
    ref = '{"name":"own","apiGroup":"trainer.kubeflow.org","kind":"TrainingRuntime"}'
    expected = (403, f"spec.runtimeRef: Invalid value: {ref}: {text}") if target.trainer >= since else (201, "")
    assert dry_run(client, namespace, train_job(initializer={"dataset": {}}, **runtime)) == expected


def test_runtimes_with_wrong_names(client, namespace):
    """A runtime is rejected if a step has no container with the right name."""
    body = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime", "metadata": {"name": "own"}}
    spec = runtime_without(client, "container")
    response = client.request("POST", path_of("TrainingRuntime", namespace), {**body, "spec": spec})
    assert response.code == 403
    assert response.message.startswith(
        DENIED.replace("trainjob", "trainingruntime", 1)
        + "[spec.template.spec.replicatedJobs[0].template.spec.template.spec.containers: "
        'Invalid value: [{"name":"my-dataset-initializer","image":"ghcr.io/kubeflow/trainer/dataset-initializer'
    )
    assert response.message.endswith(": must contain the required container for the ancestor: model-initializer]")
