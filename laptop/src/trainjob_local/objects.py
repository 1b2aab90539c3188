"""API client protocol of the kubelet and the controllers, and helpers for objects.

Objects are plain dicts in their JSON shape. `ObjectApi` has two implementations: over HTTP for a real kube-apiserver
(`process_kubelet.http_api` of its tests), and in-process for the laptop cluster (`registry_api`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any, Protocol

__all__ = [
    "GROUP_VERSIONS",
    "Json",
    "ObjectApi",
    "WatchHandler",
    "controller_of",
    "format_timestamp",
    "object_reference",
    "owner_reference",
    "parse_timestamp",
    "utc_now",
]

Json = dict[str, Any]

WatchHandler = Callable[[str, Json], None]
"""Function that gets the type of an event (`ADDED`, `MODIFIED` or `DELETED`) and the object."""

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
"""apiVersion and kind of every resource that the parts of the laptop cluster use, by plural."""


class ObjectApi(Protocol):
    """The verbs that the kubelet and the controllers use.

    Every method raises `ClusterError` with the HTTP status.
    """

    @property
    def address(self) -> str:
        """Host and port of the API server, such as `127.0.0.1:6443`."""

    def get(self, resource: str, name: str, namespace: str = "") -> Json:
        """Return one object."""

    def list(self, resource: str, namespace: str = "") -> list[Json]:
        """Return the objects of a resource in a namespace, or in all namespaces if none is given."""

    def create(self, resource: str, body: Json, namespace: str = "") -> Json:
        """Create an object and return it as stored."""

    def patch(self, resource: str, name: str, body: Json, namespace: str = "", *, subresource: str = "") -> Json:
        """Apply a JSON merge patch (RFC 7386) to an object or its subresource; return the result."""

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
        """Delete an object.

        Args:
            resource: plural of the resource.
            name: name of the object.
            namespace: namespace of the object.
            uid: required uid of the object; empty for any.
            grace: grace period in seconds; None for the object's own.
            propagation: `Background`, `Foreground` or `Orphan`; empty for the resource's default.
        """

    def token(self, namespace: str, service_account: str, spec: Json) -> str:
        """Request a token of a service account with the spec of a TokenRequest; return the token."""

    def watch(self, resource: str, handler: WatchHandler, *, field_selector: str = "") -> None:
        """Call the handler for every existing object and for every later change.

        The calls run on a thread of the implementation.

        Args:
            resource: plural of the resource.
            handler: function that gets the events.
            field_selector: field selector of the objects; empty for all.
        """


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(timezone.utc)


def format_timestamp(moment: datetime) -> str:
    """Format a time as Kubernetes' `metav1.Time`: whole seconds, `2026-01-31T12:00:00Z`."""
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str) -> datetime:
    """Parse a `metav1.Time`, such as `2026-01-31T12:00:00Z`."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)


def object_reference(obj: Json, resource: str) -> Json:
    """Return a reference to an object, in the shape of an event's `involvedObject`."""
    meta = obj["metadata"]
    api_version, kind = GROUP_VERSIONS[resource]
    found = {"apiVersion": api_version, "kind": kind, "name": meta["name"], "uid": meta.get("uid", "")}
    return {**found, "namespace": meta["namespace"]} if meta.get("namespace") else found


def owner_reference(owner: Json, resource: str) -> Json:
    """Return the ownerReference to a controller.

    controller-runtime's `SetControllerReference` writes the same.

    Args:
        owner: the controlling object.
        resource: plural of its resource.
    """
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
    """Return the ownerReference whose `controller` is true, or an empty dict."""
    owners: list[Json] = obj["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), {})
