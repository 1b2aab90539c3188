"""Kueue's queues, flavors and priorities on a control plane."""

from __future__ import annotations

from typing import Any

from tests.support.kubernetes_client import KINDS, Client, Object, path_of

PRIORITIES = {"nightly": 10, "urgent": 1000}
"""WorkloadPriorityClasses and their values."""
_FLAVOR = "any"


def kueue_object(kind: str, name: str, **content: Any) -> Object:
    """Return an object of one of Kueue's kinds."""
    return {"apiVersion": KINDS[kind][0], "kind": kind, "metadata": {"name": name}, **content}


def create_shared_objects(client: Client) -> None:
    """Create the flavor and the priorities that all queues share."""
    client.create(kueue_object("ResourceFlavor", _FLAVOR))
    for name, value in PRIORITIES.items():
        client.create(kueue_object("WorkloadPriorityClass", name, value=value))


def create_queue(client: Client, namespace: str, name: str, cpus: int = 1, **spec: Any) -> str:
    """Create a LocalQueue and its own ClusterQueue, and return the ClusterQueue's name.

    `spec` adds to or replaces fields of the ClusterQueue's spec.
    """
    resources = [{"name": "cpu", "nominalQuota": cpus}]
    group = {"coveredResources": ["cpu"], "flavors": [{"name": _FLAVOR, "resources": resources}]}
    preemption = {"withinClusterQueue": "LowerPriority"}
    whole = {"namespaceSelector": {}, "resourceGroups": [group], "preemption": preemption, **spec}
    made = f"{namespace}-{name}"
    client.create(kueue_object("ClusterQueue", made, spec=whole))
    client.create(kueue_object("LocalQueue", name, spec={"clusterQueue": made}), namespace)
    return made


def workload_of(client: Client, namespace: str, uid: str) -> Object | None:
    """Return the Workload of a TrainJob."""
    answer = client.request("GET", path_of("Workload", namespace), labelSelector=f"kueue.x-k8s.io/job-uid={uid}")
    assert answer.ok, answer.message
    return next(iter(answer.body["items"]), None)
