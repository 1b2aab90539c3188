"""Jobs that are accepted and do not start, and the events that say why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.conformance.backends import Target
from tests.support.kubernetes_client import Client, Object
from tests.support.trainjobs import pod_patch, shell


def trainer_with_limits(**amounts: str) -> Object:
    """A trainer with these limits."""
    return {"resourcesPerNode": {"limits": amounts}}


def trainer_with_variable(kind: str, name: str) -> Object:
    """A trainer with a variable from key `k` of a Secret or ConfigMap."""
    return {"env": [{"name": "A", "valueFrom": {kind: {"name": name, "key": "k"}}}]}


def pod_with_volume(**source: Any) -> Object:
    """A patch of a pod that mounts a volume."""
    volume = {"name": "v", **source}
    return {"volumes": [volume], "containers": [{"name": "node", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]}


def claim_of_class(name: str, storage_class: str) -> Object:
    """A claim of a StorageClass."""
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
    """Creates a job whose trainer or pods have something special."""
    patch = pod_patch(target.trainer, pod) if pod else {}
    client.create(shell("true", name=name, trainer=trainer, **patch), namespace)


def wait_for_event(client: Client, namespace: str, kind: str, name: str, reason: str) -> Object:
    """The first event of an object; a name that ends with a dash is the beginning of one."""

    def meant(item: Object) -> bool:
        about = item["involvedObject"]
        named = about["name"].startswith(name) if name.endswith("-") else about["name"] == name
        return bool(named and about["kind"] == kind and item["reason"] == reason)

    return client.wait_for("Event", namespace, "", meant)


def has_event_time(event: Object) -> bool:
    """Whether it was written through events.k8s.io: without timestamps but an eventTime."""
    assert (event["firstTimestamp"] is None) == (event["eventTime"] is not None)
    return bool(event["firstTimestamp"] is None)
