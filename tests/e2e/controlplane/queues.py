"""A control plane with Kueue, and queues on it."""

from __future__ import annotations

from typing import Any

from tests.support.kubernetes_client import KINDS, Client, Object, path_of

PRIORITIES = {"nightly": 10, "urgent": 1000}
"""WorkloadPriorityClasses."""
_FLAVOR = "any"


def kueue(kind: str, name: str, **content: Any) -> Object:
    """An object of Kueue's."""
    return {"apiVersion": KINDS[kind][0], "kind": kind, "metadata": {"name": name}, **content}


def prepare(client: Client) -> None:
    """Makes what all queues share: a flavor, and priorities."""
    client.create(kueue("ResourceFlavor", _FLAVOR))
    for name, value in PRIORITIES.items():
        client.create(kueue("WorkloadPriorityClass", name, value=value))


def make_queue(client: Client, namespace: str, name: str, cpus: int = 1, **spec: Any) -> str:
    """Makes a LocalQueue, and a ClusterQueue for it alone; the latter's name. `spec` is the latter's."""
    resources = [{"name": "cpu", "nominalQuota": cpus}]
    group = {"coveredResources": ["cpu"], "flavors": [{"name": _FLAVOR, "resources": resources}]}
    preemption = {"withinClusterQueue": "LowerPriority"}
    whole = {"namespaceSelector": {}, "resourceGroups": [group], "preemption": preemption, **spec}
    made = f"{namespace}-{name}"
    client.create(kueue("ClusterQueue", made, spec=whole))
    client.create(kueue("LocalQueue", name, spec={"clusterQueue": made}), namespace)
    return made


def workload_of(client: Client, namespace: str, uid: str) -> Object | None:
    """The Workload of a TrainJob."""
    answer = client.ask("GET", path_of("Workload", namespace), labelSelector=f"kueue.x-k8s.io/job-uid={uid}")
    assert answer.ok, answer.message
    return next(iter(answer.body["items"]), None)
