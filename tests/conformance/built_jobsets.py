"""The JobSets that the Trainer builds of TrainJobs, which are created suspended: they need neither pods nor GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.conformance.runtimes import create_runtime
from tests.support.kubernetes_client import Client, Object
from tests.support.trainjobs import IMAGE, pod_patch

TUNE = ("tune", "run")
TORCHTUNE_RUNTIMES = {
    "llama3.2-1b": "torchtune-llama3.2-1b",
    "llama3.2-3b": "torchtune-llama3.2-3b",
    "qwen2.5-1.5b": "torchtune-qwen2.5-1.5b",
}


def create_jobsets(client: Client, namespace: str, jobs: Mapping[str, Object]) -> dict[str, Object]:
    """Create suspended TrainJobs, named by the keys, and return the JobSet of each."""
    for name, job in jobs.items():
        client.create({**job, "metadata": {"name": name}, "spec": {**job["spec"], "suspend": True}}, namespace)
    return {name: client.wait_for("JobSet", namespace, name, bool) for name in jobs}


def find_replicated_job(jobset: Object, name: str = "node") -> Object:
    """Return the replicated job of a JobSet with this name."""
    found: Object = next(job for job in jobset["spec"]["replicatedJobs"] if job["name"] == name)
    return found


def find_pod_spec(jobset: Object, name: str = "node") -> Object:
    """Return the pod spec of one of a JobSet's replicated jobs."""
    spec: Object = find_replicated_job(jobset, name)["template"]["spec"]["template"]["spec"]
    return spec


def find_container(jobset: Object, name: str = "node") -> Object:
    """Return the container of a replicated job that has the name of that job."""
    found: Object = next(one for one in find_pod_spec(jobset, name)["containers"] if one["name"] == name)
    return found


def read_environment(container: Object) -> dict[str, Any]:
    """Return a container's variables in order: the values, or where they come from."""
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container.get("env", [])}


def create_training_only_runtime(client: Client, namespace: str, stock_runtime: str, name: str) -> Object:
    """Create a copy of a stock runtime that only trains, and return a reference to it.

    The copy has no initializers and no volumes.
    """
    spec = client.get("ClusterTrainingRuntime", None, stock_runtime)["spec"]
    node = next(job for job in spec["template"]["spec"]["replicatedJobs"] if job["name"] == "node")
    node.pop("dependsOn", None)
    pod = node["template"]["spec"]["template"]["spec"]
    pod.pop("volumes", None)
    for one in pod["containers"]:
        one.pop("volumeMounts", None)
    return create_runtime(client, namespace, {**spec, "template": {"spec": {"replicatedJobs": [node]}}}, name)


def gpu_resources(count: int, **more: str) -> Object:
    """Return the resources of a node with GPUs, as requests and limits."""
    amounts = {"nvidia.com/gpu": str(count), **more}
    return {"requests": amounts, "limits": dict(amounts)}


def create_scripted_runtime(
    client: Client, namespace: str, scripts: Mapping[str, str], *, retain_claim: bool = False
) -> Object:
    """Create a runtime like TorchTune's, with its steps and volume, that runs scripts.

    Args:
        client: a client that may create runtimes.
        namespace: the namespace of the runtime.
        scripts: the script of each step; a step without a script does nothing.
        retain_claim: whether the claim outlives the TrainJob.

    Returns:
        The reference of a TrainJob to the runtime.
    """
    spec = client.get("ClusterTrainingRuntime", None, TORCHTUNE_RUNTIMES["llama3.2-1b"])["spec"]
    for job in spec["template"]["spec"]["replicatedJobs"]:
        inner = job["template"]["spec"]
        inner["backoffLimit"], inner["template"]["spec"]["restartPolicy"] = 0, "Never"
        (one,) = inner["template"]["spec"]["containers"]
        one.pop("resources", None)
        one.update(image=IMAGE, command=["sh", "-c", scripts.get(job["name"], "true")])
    for policy in spec["template"]["spec"].get("volumeClaimPolicies", []):
        policy["retentionPolicy"] = {"whenDeleted": "Retain" if retain_claim else "Delete"}
    return create_runtime(client, namespace, spec)


def claim(name: str, size: str = "1Gi") -> Object:
    """Return a PersistentVolumeClaim that the user creates."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}},
    }


def mount_patch(version: tuple[int, int], volume: str, path: str, steps: Sequence[str] = ("node",)) -> Object:
    """Return the spec field of a TrainJob that mounts the claim `mine` in these steps."""
    fields: Object = {}
    for step in steps:
        pod = {
            "volumes": [{"name": volume, "persistentVolumeClaim": {"claimName": "mine"}}],
            "containers": [{"name": step, "volumeMounts": [{"name": volume, "mountPath": path}]}],
        }
        for key, items in pod_patch(version, pod, [step]).items():
            fields.setdefault(key, []).extend(
                {**item, "manager": f"example.org/{step}"} if key == "runtimePatches" else item for item in items
            )
    return fields


def wait_for_warning(client: Client, namespace: str, name: str, reason: str) -> Object:
    """Wait for the first Warning event with that reason about an object, and return it."""
    selector = f"involvedObject.name={name},reason={reason},type=Warning"
    return client.wait_for("Event", namespace, "", bool, fieldSelector=selector)
