"""TrainJobs written by hand, without the builders under test.

The functions read the TrainJobs' status and pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.kubernetes_client import Client, Object

IMAGE = "docker.io/library/python:3.12-alpine"
JOBSET = "jobset.sigs.k8s.io/jobset-name"
PATCH_FIELD = {(2, 0): "podSpecOverrides", (2, 1): "podTemplateOverrides"}


def train_job(
    *command: str,
    name: str = "job",
    runtime: str = "torch-distributed",
    kind: str = "ClusterTrainingRuntime",
    trainer: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Object:
    """Return a TrainJob.

    `trainer` adds to or replaces fields of `spec.trainer`; every other argument goes into `spec`.
    """
    part = {**({"image": IMAGE, "command": list(command)} if command else {}), **(trainer or {})}
    body = {"runtimeRef": {"name": runtime, "kind": kind}, **({"trainer": part} if part else {}), **spec}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": body,
    }


def shell(script: str, **arguments: Any) -> Object:
    """Return a TrainJob that runs a script."""
    return train_job("sh", "-c", script, **arguments)


def torch_runtime(image: str = IMAGE, kind: str = "TrainingRuntime", name: str = "own") -> Object:
    """Return a training runtime of one node with the policy of torch."""
    pod = {"spec": {"containers": [{"name": "node", "image": image, "resources": {"requests": {"cpu": "0.01"}}}]}}
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    node = {"name": "node", "template": {"metadata": {"labels": labels}, "spec": {"template": pod}}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": {"replicatedJobs": [node]}}},
    }


def create_never_restarting_runtime(client: Client, namespace: str, **job_spec: Any) -> str:
    """Create a runtime like torch-distributed whose pods are not restarted in place.

    The runtime is a TrainingRuntime in the namespace. The function returns its name.
    """
    stock = client.get("ClusterTrainingRuntime", None, "torch-distributed")["spec"]
    jobs = [
        {**job, "template": {**job["template"], "spec": {**job["template"]["spec"], **job_spec}}}
        for job in stock["template"]["spec"]["replicatedJobs"]
    ]
    for job in jobs:
        job["template"]["spec"]["template"]["spec"]["restartPolicy"] = "Never"
        job["template"]["spec"].setdefault("backoffLimit", 0)
    item = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": "never", "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {**stock, "template": {**stock["template"], "spec": {"replicatedJobs": jobs}}},
    }
    client.create(item, namespace)
    return "never"


def conditions(job: Object) -> list[tuple[str, str, str, str]]:
    """Return type, status, reason and message of each condition, in the order of the list."""
    found = (job.get("status") or {}).get("conditions") or []
    return [(item["type"], item["status"], item["reason"], item["message"]) for item in found]


def has_condition(kind: str, status: str = "True") -> Any:
    """Return a predicate that accepts a TrainJob with that condition."""
    return lambda job: any(item[:2] == (kind, status) for item in conditions(job))


def is_finished(job: Object) -> bool:
    """Return whether a TrainJob has completed or failed."""
    return any(item[:2] in {("Complete", "True"), ("Failed", "True")} for item in conditions(job))


def counters(job: Object) -> dict[str, dict[str, int]]:
    """Return the jobsStatus by replicated job, without zeros."""
    rows = (job.get("status") or {}).get("jobsStatus") or []
    return {row["name"]: {key: value for key, value in row.items() if key != "name" and value} for row in rows}


def list_pods(client: Client, namespace: str, name: str = "job") -> list[Object]:
    """Return a TrainJob's pods."""
    return client.list("Pod", namespace, labelSelector=f"{JOBSET}={name}")


def pod_patch(version: tuple[int, int], pod: Mapping[str, Any], jobs: Sequence[str] = ("node",)) -> Object:
    """Return the spec field with which this version's TrainJobs patch their pods' spec."""
    if version < (2, 2):
        flat = version < (2, 1)
        item: Object = {"targetJobs": [{"name": name} for name in jobs], **(dict(pod) if flat else {"spec": dict(pod)})}
        return {PATCH_FIELD[version]: [item]}
    patches = [{"name": name, "template": {"spec": {"template": {"spec": dict(pod)}}}} for name in jobs]
    return {
        "runtimePatches": [
            {
                "manager": "example.org/conformance",
                "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": patches}}},
            }
        ]
    }
