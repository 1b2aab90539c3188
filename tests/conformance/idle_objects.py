"""Objects that no controller changes, of a built-in and of a custom kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tests.support.kubernetes_client import Client, Object, Response

KINDS = ("Secret", "TrainingRuntime")


def idle_object(kind: str, name: str, **metadata: Any) -> Object:
    """Return an object of one of `KINDS`."""
    meta = {"name": name, **metadata}
    if kind == "Secret":
        return {"apiVersion": "v1", "kind": "Secret", "metadata": meta}
    pod = {"containers": [{"name": "node", "image": "none"}]}
    node = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
    spec = {"template": {"spec": {"replicatedJobs": [node]}}}
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime", "metadata": meta, "spec": spec}


def create_objects(client: Client, namespace: str, kind: str, names: Iterable[str], **metadata: Any) -> list[Object]:
    """Create objects with these names and the same metadata."""
    return [client.create(idle_object(kind, name, **metadata), namespace) for name in names]


def resource_version_of(item: Object) -> str:
    """Return the resourceVersion of an object or a list."""
    return str(item["metadata"]["resourceVersion"])


def names_of(items: Sequence[Object]) -> list[str]:
    """Return the names of objects, in their order."""
    return [item["metadata"]["name"] for item in items]


def error_of(response: Response) -> tuple[int, str, str]:
    """Return code, reason and message of an error response."""
    return response.code, response.reason, response.message
