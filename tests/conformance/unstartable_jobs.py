"""Jobs that are accepted and do not start, and the events that have the reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.conformance.backends import Target
from tests.support.kubernetes_client import Client, Object
from tests.support.trainjobs import pod_patch, shell


def trainer_with_limits(**amounts: str) -> Object:
    """Return a trainer with these resource limits."""
    return {"resourcesPerNode": {"limits": amounts}}


def trainer_with_variable(kind: str, name: str) -> Object:
    """Return a trainer with a variable from the key `k` of a Secret or ConfigMap."""
    return {"env": [{"name": "A", "valueFrom": {kind: {"name": name, "key": "k"}}}]}


def pod_with_volume(**source: Any) -> Object:
    """Return a patch of a pod that mounts a volume."""
    volume = {"name": "v", **source}
    return {"volumes": [volume], "containers": [{"name": "node", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]}


def claim_of_class(name: str, storage_class: str) -> Object:
    """Return a claim of a StorageClass."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def create_job(
    client: Client,
    namespace: str,
    target: Target,
    name: str,
    trainer: Mapping[str, Any] | None = None,
    pod: Mapping[str, Any] | None = None,
) -> None:
    """Create a job with these fields of its trainer and of its pods."""
    patch = pod_patch(target.trainer, pod) if pod else {}
    client.create(shell("true", name=name, trainer=trainer, **patch), namespace)


def wait_for_event(client: Client, namespace: str, kind: str, name: str, reason: str) -> Object:
    """Wait for an event of an object, and return it; a name that ends with a dash is a prefix."""

    def is_event_of_object(item: Object) -> bool:
        involved = item["involvedObject"]
        has_name = involved["name"].startswith(name) if name.endswith("-") else involved["name"] == name
        return bool(has_name and involved["kind"] == kind and item["reason"] == reason)

    return client.wait_for("Event", namespace, "", is_event_of_object)


def has_event_time(event: Object) -> bool:
    """Return whether an event has an eventTime and no timestamps, as in events.k8s.io."""
    assert (event["firstTimestamp"] is None) == (event["eventTime"] is not None)
    return bool(event["firstTimestamp"] is None)
