"""Objects that no controller changes, of a built-in and of a custom kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tests.support.kubernetes_client import Client, Object, Response

KINDS = ("Secret", "TrainingRuntime")


def idle_object(kind: str, name: str, **metadata: Any) -> Object:
    """An object of one of `KINDS`."""
    meta = {"name": name, **metadata}
    if kind == "Secret":
        return {"apiVersion": "v1", "kind": "Secret", "metadata": meta}
    pod = {"containers": [{"name": "node", "image": "none"}]}
    node = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
    spec = {"template": {"spec": {"replicatedJobs": [node]}}}
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime", "metadata": meta, "spec": spec}


def create_objects(client: Client, namespace: str, kind: str, names: Iterable[str], **metadata: Any) -> list[Object]:
    """Creates some of them, all with the same metadata."""
    return [client.create(idle_object(kind, name, **metadata), namespace) for name in names]


def resource_version_of(item: Object) -> str:
    """The resourceVersion of an object or a list."""
    return str(item["metadata"]["resourceVersion"])


def names_of(items: Sequence[Object]) -> list[str]:
    """What objects are called, in their order."""
    return [item["metadata"]["name"] for item in items]


def error_of(answer: Response) -> tuple[int, str, str]:
    """Code, reason and text of a refusal."""
    return answer.code, answer.reason, answer.message
