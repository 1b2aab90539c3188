"""What the kubelet and the controllers need from an API server, and the few words they share about its objects.

Objects are plain dicts in their JSON shape. `ObjectApi` is the door: over HTTP for a real kube-apiserver
(`process_kubelet.http_api` of its tests), in-process for the laptop cluster (`registry_api`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any, Protocol

__all__ = [
    "GROUP_VERSIONS",
    "Handler",
    "Json",
    "ObjectApi",
    "controller_of",
    "owner_reference",
    "reference",
    "rfc3339",
    "timestamp",
    "utc_now",
]

Json = dict[str, Any]

Handler = Callable[[str, Json], None]
"""Called with `ADDED`, `MODIFIED` or `DELETED` and the object."""

GROUP_VERSIONS: Mapping[str, tuple[str, str]] = {
    "pods": ("v1", "Pod"),
    "nodes": ("v1", "Node"),
    "events": ("v1", "Event"),
    "secrets": ("v1", "Secret"),
    "configmaps": ("v1", "ConfigMap"),
    "services": ("v1", "Service"),
    "persistentvolumeclaims": ("v1", "PersistentVolumeClaim"),
    "persistentvolumes": ("v1", "PersistentVolume"),
    "jobs": ("batch/v1", "Job"),
    "jobsets": ("jobset.x-k8s.io/v1alpha2", "JobSet"),
    "trainjobs": ("trainer.kubeflow.org/v1alpha1", "TrainJob"),
    "trainingruntimes": ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime"),
    "clustertrainingruntimes": ("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime"),
}
"""apiVersion and kind of every resource the laptop cluster's parts touch."""


class ObjectApi(Protocol):
    """The verbs the kubelet and the controllers use. Every method raises `ClusterError` with the HTTP status."""

    @property
    def address(self) -> str:
        """Host and port of the API server, as `127.0.0.1:6443`."""

    def get(self, resource: str, name: str, namespace: str = "") -> Json:
        """Reads one object."""

    def list(self, resource: str, namespace: str = "") -> list[Json]:
        """Reads all objects of a resource, of every namespace when none is given."""

    def create(self, resource: str, body: Json, namespace: str = "") -> Json:
        """Creates an object and returns it as stored."""

    def patch(self, resource: str, name: str, body: Json, namespace: str = "", *, subresource: str = "") -> Json:
        """Applies a JSON merge patch (RFC 7386) to the object or to its subresource."""

    def delete(
        self,
        resource: str,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        grace: int | None = None,
        propagation: str = "",
    ) -> None:
        """Deletes an object; `grace` in seconds, `propagation` one of Background, Foreground, Orphan."""

    def token(self, namespace: str, service_account: str, spec: Json) -> str:
        """Makes a token for a service account (a TokenRequest with this spec)."""

    def follow(self, resource: str, handler: Handler, *, field_selector: str = "") -> None:
        """Calls the handler for every object there is and for every later change, on a thread of the API's own."""


def utc_now() -> datetime:
    """Reads the clock."""
    return datetime.now(timezone.utc)


def timestamp(moment: datetime) -> str:
    """Writes a moment as Kubernetes does in `metav1.Time`: whole seconds, `2026-01-31T12:00:00Z`."""
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339(text: str) -> datetime:
    """Reads a `metav1.Time`."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)


def reference(obj: Json, resource: str) -> Json:
    """Says which object is meant, in the shape of an event's `involvedObject`."""
    meta = obj["metadata"]
    api_version, kind = GROUP_VERSIONS[resource]
    found = {"apiVersion": api_version, "kind": kind, "name": meta["name"], "uid": meta.get("uid", "")}
    return {**found, "namespace": meta["namespace"]} if meta.get("namespace") else found


def owner_reference(owner: Json, resource: str) -> Json:
    """Makes the ownerReference of a controller, as controller-runtime's `SetControllerReference` does."""
    api_version, kind = GROUP_VERSIONS[resource]
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_of(obj: Json) -> Json:
    """Finds the ownerReference whose `controller` is true, or an empty dict."""
    owners: list[Json] = obj["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), {})
