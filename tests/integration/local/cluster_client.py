"""Unmodified Kubernetes client of a laptop cluster, with short methods for the tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes
from kubernetes.client.rest import ApiException

GROUP = ("trainer.kubeflow.org", "v1alpha1")
NAMESPACE = "default"


def train_job(
    name: str, *command: str, runtime: str = "torch-distributed", kind: str = "", **spec: Any
) -> dict[str, Any]:
    """Return a TrainJob; `trainer` adds to the fields of `spec.trainer`.

    A command runs in an image that no environment replaces.
    """
    trainer = {**({"command": list(command), "image": "busybox"} if command else {}), **spec.pop("trainer", {})}
    reference = {"name": runtime, **({"kind": kind} if kind else {})}
    body = {"runtimeRef": reference, **({"trainer": trainer} if trainer else {}), **spec}
    return {"apiVersion": "/".join(GROUP), "kind": "TrainJob", "metadata": {"name": name}, "spec": body}


def pod_patch(pod: dict[str, Any]) -> list[dict[str, Any]]:
    """Return runtimePatches that change the pods of `node`."""
    jobs = [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]
    return [{"manager": "example.org/test", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}]


class ClusterClient:
    """A client of the cluster of a kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        self.state = kubeconfig.parent
        self.api = kubernetes.config.new_client_from_config(str(kubeconfig))
        self.core = kubernetes.client.CoreV1Api(self.api)
        self.custom = kubernetes.client.CustomObjectsApi(self.api)

    def close(self) -> None:
        self.api.close()
        self.api.rest_client.pool_manager.clear()

    def create_job(self, job: dict[str, Any]) -> dict[str, Any]:
        created: dict[str, Any] = self.custom.create_namespaced_custom_object(
            *GROUP, NAMESPACE, "trainjobs", job, field_validation="Strict"
        )
        return created

    def get_job(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.custom.get_namespaced_custom_object(*GROUP, NAMESPACE, "trainjobs", name)
        return found

    def is_deleted(self, name: str) -> bool:
        try:
            self.get_job(name)
        except ApiException as error:
            assert error.status == 404
            return True
        return False

    def patch(self, name: str, spec: dict[str, Any]) -> None:
        self.custom.patch_namespaced_custom_object(*GROUP, NAMESPACE, "trainjobs", name, {"spec": spec})

    def delete(self, name: str, **options: Any) -> Any:
        return self.custom.delete_namespaced_custom_object(*GROUP, NAMESPACE, "trainjobs", name, **options)

    def wait_for(self, name: str, condition: Callable[[dict[str, Any]], Any], seconds: int = 120) -> dict[str, Any]:
        """Watch a TrainJob until `condition` returns true; fail after the timeout."""
        seen: dict[str, Any] = {}
        watch = kubernetes.watch.Watch()
        stream = watch.stream(
            self.custom.list_namespaced_custom_object,
            *(*GROUP, NAMESPACE, "trainjobs"),
            field_selector=f"metadata.name={name}",
            timeout_seconds=seconds,
        )
        for event in stream:
            seen = event["object"]
            if condition(seen):
                watch.stop()
                return seen
        raise AssertionError(f"{name} stayed {json.dumps(seen.get('status'))}")

    def wait_until_ended(self, name: str, seconds: int = 120) -> dict[str, Any]:
        """Wait until a TrainJob has ended, and return the condition that ended it."""
        done = self.wait_for(name, self.end_conditions, seconds)
        return self.end_conditions(done)[0]

    @staticmethod
    def end_conditions(job: dict[str, Any]) -> list[dict[str, Any]]:
        conditions = job.get("status", {}).get("conditions", [])
        return [one for one in conditions if one["type"] in ("Complete", "Failed") and one["status"] == "True"]

    def list_pods(self, name: str) -> list[Any]:
        selector = f"jobset.sigs.k8s.io/jobset-name={name}"
        return list(self.core.list_namespaced_pod(NAMESPACE, label_selector=selector).items)

    def get_pod(self, name: str) -> Any:
        (only,) = self.list_pods(name)
        return only

    def read_log(self, pod: str, **options: Any) -> str:
        response = self.core.read_namespaced_pod_log(pod, NAMESPACE, _preload_content=False, **options)
        return str(response.data.decode())

    def list_events(self, *, name_prefix: str) -> list[tuple[str, str, str]]:
        """Return kind, reason and message of events, oldest first.

        The names of the objects that they are about begin with `name_prefix`.
        """
        events = self.core.list_namespaced_event(NAMESPACE).items
        found = [event for event in events if event.involved_object.name.startswith(name_prefix)]
        found.sort(key=lambda event: int(event.metadata.resource_version))
        return [(event.involved_object.kind, event.reason, event.message) for event in found]

    def create_runtime(self, name: str, *, policy: str, limit: int) -> None:
        """Create a namespaced runtime with its own restart policy and backoffLimit."""
        container = {"name": "node", "image": "busybox"}
        pod = {"restartPolicy": policy, "containers": [container]}
        labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
        template = {"metadata": {"labels": labels}, "spec": {"backoffLimit": limit, "template": {"spec": pod}}}
        body = {
            "apiVersion": "/".join(GROUP),
            "kind": "TrainingRuntime",
            "metadata": {"name": name},
            "spec": {
                "mlPolicy": {"numNodes": 1, "torch": {}},
                "template": {"spec": {"replicatedJobs": [{"name": "node", "template": template}]}},
            },
        }
        self.custom.create_namespaced_custom_object(*GROUP, NAMESPACE, "trainingruntimes", body)
