"""What the Trainer makes of TrainJobs: created suspended, so that no pod and no GPU is needed."""

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
    """The JobSet of each of these TrainJobs; they get the keys as names."""
    for name, job in jobs.items():
        client.create({**job, "metadata": {"name": name}, "spec": {**job["spec"], "suspend": True}}, namespace)
    return {name: client.wait_for("JobSet", namespace, name, bool) for name in jobs}


def find_replicated_job(jobset: Object, name: str = "node") -> Object:
    """One of a JobSet's replicated jobs."""
    found: Object = next(job for job in jobset["spec"]["replicatedJobs"] if job["name"] == name)
    return found


def find_pod_spec(jobset: Object, name: str = "node") -> Object:
    """The spec of the pods of one of a JobSet's replicated jobs."""
    spec: Object = find_replicated_job(jobset, name)["template"]["spec"]["template"]["spec"]
    return spec


def find_container(jobset: Object, name: str = "node") -> Object:
    """The container of the same name of one of a JobSet's replicated jobs."""
    found: Object = next(one for one in find_pod_spec(jobset, name)["containers"] if one["name"] == name)
    return found


def read_environment(container: Object) -> dict[str, Any]:
    """A container's variables in their order: the value, or where it comes from."""
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container.get("env", [])}


def create_training_only_runtime(client: Client, namespace: str, stock_runtime: str, name: str) -> Object:
    """Creates a runtime of the namespace like a stock one, with nothing before the training; how to refer to it."""
    spec = client.get("ClusterTrainingRuntime", None, stock_runtime)["spec"]
    node = next(job for job in spec["template"]["spec"]["replicatedJobs"] if job["name"] == "node")
    node.pop("dependsOn", None)
    pod = node["template"]["spec"]["template"]["spec"]
    pod.pop("volumes", None)
    for one in pod["containers"]:
        one.pop("volumeMounts", None)
    return create_runtime(client, namespace, {**spec, "template": {"spec": {"replicatedJobs": [node]}}}, name)


def gpu_resources(count: int, **more: str) -> Object:
    """Resources of a node with GPUs, in requests and limits."""
    amounts = {"nvidia.com/gpu": str(count), **more}
    return {"requests": amounts, "limits": dict(amounts)}


def create_scripted_runtime(
    client: Client, namespace: str, scripts: Mapping[str, str], *, retain_claim: bool = False
) -> Object:
    """Creates a runtime like TorchTune's, with its steps, order and volume, whose steps run scripts.

    Args:
        client: with the right to do it.
        namespace: where.
        scripts: what each step runs; a step that is not named does nothing.
        keep: the claim outlives the TrainJob.

    Returns:
        How a TrainJob refers to it.
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
    """A claim of the user's own."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}},
    }


def mount_patch(version: tuple[int, int], volume: str, path: str, steps: Sequence[str] = ("node",)) -> Object:
    """The field of a TrainJob's spec that mounts the claim `mine` in some steps."""
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
    """The first Warning event of that reason about an object."""
    selector = f"involvedObject.name={name},reason={reason},type=Warning"
    return client.wait_for("Event", namespace, "", bool, fieldSelector=selector)
