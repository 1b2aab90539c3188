"""Table of all resources of the server.

Discovery, routes, rules and storage are derived from it.
Names and rules are those of kube-apiserver 1.36.3, JobSet 0.12.0 and Trainer 2.3.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["RESOURCES", "Resource", "by_group_version"]


@dataclass(frozen=True)
class Resource:
    """Names, addresses and storage rules of one resource.

    Attributes:
        group: API group; empty for core.
        version: API version, such as `v1`.
        plural: name in URLs, and the key of a resource in `Registry`.
        kind: kind of its objects.
        namespaced: whether its objects belong to namespaces.
        custom: whether it is a custom resource: no strategic merge patch, PUT needs a resourceVersion, 422 texts of
            CRDs.
        subresources: its subresources, such as `status`, `log`, `binding`, `token`.
        has_generation: whether `metadata.generation` counts changes of the spec.
        initial_status: status of a new object; None if the server keeps the status of the request (nodes), or if the
            resource has no status.
        returns_deleted: whether the response to DELETE is the object instead of a Status.
        selectable_fields: paths of the supported field selectors beyond metadata.name and metadata.namespace.
        short_names: short names in discovery.
        categories: groups of kinds in discovery, such as `all` of `kubectl get all`.
        name_rule: rule for metadata.name: `subdomain`, `label` (both RFC 1123) or `path`.
        orphans_dependents: whether DELETE without a propagation policy orphans the dependents (batch/v1 jobs).
        stored_as: plural of the resource that stores these objects in another shape (events.k8s.io); else empty.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    custom: bool = False
    subresources: tuple[str, ...] = ()
    has_generation: bool = False
    initial_status: Mapping[str, Any] | None = None
    returns_deleted: bool = False
    selectable_fields: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    name_rule: str = "subdomain"
    orphans_dependents: bool = False
    stored_as: str = field(default="")

    @property
    def api_version(self) -> str:
        """The apiVersion of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified_name(self) -> str:
        """Name in messages, such as `pods` or `trainjobs.trainer.kubeflow.org`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def has_status(self) -> bool:
        """True if clients can write the status only through the status subresource."""
        return "status" in self.subresources

    def unknown_field_message(self, path: str) -> str:
        """Return the error message for a field selector with an unsupported field."""
        if self.plural == "jobs":
            return f'field label "{path}" not supported for Job'
        if self.custom or self.selectable_fields:
            return f"field label not supported: {path}"
        return f'"{path}" is not a known field selector: only "metadata.name", "metadata.namespace"'


_RBAC, _BATCH, _TRAINER = "rbac.authorization.k8s.io", "batch", "trainer.kubeflow.org"
_STATUS = ("status",)
_POD_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "status.nominatedNodeName",
)
_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_EVENT_FIELDS = (*(f"involvedObject.{part}" for part in _INVOLVED), "reason", "reportingComponent", "source", "type")
_REGARDING = (*(f"regarding.{part}" for part in _INVOLVED), "reason", "reportingController", "type")

RESOURCES: tuple[Resource, ...] = (
    Resource(
        "", "v1", "namespaces", "Namespace", namespaced=False, subresources=_STATUS, initial_status={"phase": "Active"},
        selectable_fields=("status.phase",), short_names=("ns",), name_rule="label",
    ),
    Resource(
        "", "v1", "pods", "Pod", subresources=("status", "log", "binding"), has_generation=True, returns_deleted=True,
        initial_status={"phase": "Pending"}, selectable_fields=_POD_FIELDS, short_names=("po",), categories=("all",),
    ),
    Resource(
        "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", subresources=_STATUS, returns_deleted=True,
        initial_status={"phase": "Pending"}, short_names=("pvc",),
    ),
    Resource(
        "", "v1", "persistentvolumes", "PersistentVolume", namespaced=False, subresources=_STATUS, returns_deleted=True,
        initial_status={"phase": "Pending"}, short_names=("pv",),
    ),
    Resource("", "v1", "events", "Event", selectable_fields=_EVENT_FIELDS, short_names=("ev",)),
    Resource(
        "events.k8s.io", "v1", "events", "Event", selectable_fields=_REGARDING, short_names=("ev",), stored_as="events",
    ),
    Resource("", "v1", "secrets", "Secret", selectable_fields=("type",)),
    Resource("", "v1", "configmaps", "ConfigMap", short_names=("cm",)),
    Resource(
        "", "v1", "services", "Service", subresources=_STATUS, initial_status={"loadBalancer": {}},
        returns_deleted=True, selectable_fields=("spec.clusterIP", "spec.type"), short_names=("svc",),
        categories=("all",), name_rule="label",
    ),
    Resource(
        "", "v1", "nodes", "Node", namespaced=False, subresources=_STATUS, selectable_fields=("spec.unschedulable",),
        short_names=("no",),
    ),
    Resource(
        "", "v1", "serviceaccounts", "ServiceAccount", subresources=("token",), returns_deleted=True,
        short_names=("sa",),
    ),
    Resource(
        _BATCH, "v1", "jobs", "Job", subresources=_STATUS, has_generation=True, initial_status={},
        selectable_fields=("status.successful",), categories=("all",), orphans_dependents=True,
    ),
    Resource(
        "jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet", custom=True, subresources=_STATUS, has_generation=True,
        initial_status={},
    ),
    Resource(
        _TRAINER, "v1alpha1", "trainjobs", "TrainJob", custom=True, subresources=_STATUS, has_generation=True,
        initial_status={},
    ),
    Resource(_TRAINER, "v1alpha1", "trainingruntimes", "TrainingRuntime", custom=True, has_generation=True),
    Resource(
        _TRAINER, "v1alpha1", "clustertrainingruntimes", "ClusterTrainingRuntime", namespaced=False, custom=True,
        has_generation=True,
    ),
    Resource(
        "storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False, short_names=("sc",),
        returns_deleted=True,
    ),
    Resource("coordination.k8s.io", "v1", "leases", "Lease"),
    Resource(
        "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False,
        short_names=("crd", "crds"), categories=("api-extensions",),
    ),
    Resource(_RBAC, "v1", "roles", "Role", name_rule="path"),
    Resource(_RBAC, "v1", "rolebindings", "RoleBinding", name_rule="path"),
    Resource(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False, name_rule="path"),
    Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False, name_rule="path"),
)  # fmt: skip
"""All stored resources; the server handles `selfsubjectaccessreviews` without storing them."""

BY_PLURAL: Mapping[str, Resource] = {resource.plural: resource for resource in RESOURCES if not resource.stored_as}
"""Stored resources by plural, the key that `Registry` uses."""


def by_group_version(group: str, version: str) -> tuple[Resource, ...]:
    """Return the resources of one API group and version; none if the server does not serve it."""
    return tuple(found for found in RESOURCES if (found.group, found.version) == (group, version))
