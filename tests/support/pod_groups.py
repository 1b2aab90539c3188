"""The CRDs of the gang schedulers' PodGroups, without the schedulers.

They have the fields that the Trainer needs.
"""

from __future__ import annotations

from tests.support.kubernetes_client import Client
from tests.support.polling import wait_until

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUPS = {"coscheduling": ("scheduling.x-k8s.io", "v1alpha1"), "volcano": ("scheduling.volcano.sh", "v1beta1")}


def install_crd(client: Client, scheduler: str) -> None:
    """Create the CRD of a scheduler, and wait until the API server has established it."""
    group, version = GROUPS[scheduler]
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"plural": "podgroups", "singular": "podgroup", "kind": "PodGroup", "listKind": "PodGroupList"}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}}
    served = {"name": version, "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
    item = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"podgroups.{group}",
            "annotations": {
                "api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"
            },
        },
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [served]},
    }
    response = client.request("POST", CRDS, item)
    assert response.ok or response.reason == "AlreadyExists", response.message

    def established() -> bool:
        found = client.request("GET", f"{CRDS}/podgroups.{group}").body
        conditions = (found.get("status") or {}).get("conditions") or []
        return any((one["type"], one["status"]) == ("Established", "True") for one in conditions)

    wait_until(established)


def group_path(scheduler: str, namespace: str, name: str) -> str:
    """Return the URL path of a PodGroup."""
    group, version = GROUPS[scheduler]
    return f"/apis/{group}/{version}/namespaces/{namespace}/podgroups/{name}"
