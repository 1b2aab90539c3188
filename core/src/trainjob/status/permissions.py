"""Permissions that TrainJobs need, and the Roles that grant missing permissions.

The table also has the consequence of each missing permission. The Roles in `manifests/person` and `manifests/cluster`
grant the same permissions; a test compares them with this table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

_RBAC = "rbac.authorization.k8s.io"
_ACCOUNT = "system:serviceaccount:"
_NAME = "trainjob-missing"


@dataclass(frozen=True)
class Permission:
    """Permission for one verb on one kind of object.

    Attributes:
        group: API group; empty for the core group of Kubernetes.
        resource: plural name, with its subresource: `pods/log`.
        verb: verb, such as `list`.
        consequence: what does not work without this permission, as a clause.
        required: whether TrainJobs can't run without this permission.
        cluster_wide: whether the objects belong to no namespace.
    """

    group: str
    resource: str
    verb: str
    consequence: str
    required: bool = False
    cluster_wide: bool = False


def _permissions(group: str, resource: str, verbs: str, consequence: str, **more: bool) -> list[Permission]:
    return [Permission(group, resource, verb, consequence, **more) for verb in verbs.split()]


_TRAINER, _KUEUE = "trainer.kubeflow.org", "kueue.x-k8s.io"
PERMISSIONS: Sequence[Permission] = (
    *_permissions(_TRAINER, "trainjobs", "create", "TrainJobs can't be created", required=True),
    *_permissions(_TRAINER, "trainjobs", "get list", "TrainJobs can't be adopted or waited for", required=True),
    *_permissions(_TRAINER, "trainjobs", "delete", "TrainJobs can't be deleted", required=True),
    *_permissions(_TRAINER, "trainjobs", "watch", "a wait lists the TrainJobs every few seconds"),
    *_permissions(_TRAINER, "trainjobs", "patch", "TrainJobs can't be suspended, resumed or adopted"),
    *_permissions(
        "", "pods", "list", "remaining pods of an earlier TrainJob with the same name can't be found", required=True
    ),
    *_permissions("", "pods", "watch", "failures and missing images are reported late, or only at the end"),
    *_permissions("", "pods/log", "get", "logs can't be read"),
    *_permissions("", "events", "list", "Warning events are not reported"),
    *_permissions("jobset.x-k8s.io", "jobsets", "get", "the failurePolicy rule that ended a TrainJob is not reported"),
    *_permissions(_TRAINER, "trainingruntimes", "get list", "TrainingRuntimes are not checked"),
    *_permissions(_KUEUE, "workloads", "list", "the reason why a TrainJob waits in a queue is not reported"),
    *_permissions(_KUEUE, "localqueues", "list", "LocalQueues are not checked"),
    *_permissions("", "persistentvolumeclaims", "get", "a sweep keeps each TrainJob that may own an unexported model"),
    *_permissions("", "persistentvolumeclaims", "list", "PersistentVolumeClaims are not checked"),
    *_permissions("", "namespaces", "get", "sidecars and Pod Security of the namespace are not checked"),
    *_permissions("", "resourcequotas", "list", "ResourceQuotas are not checked"),
    *_permissions("", "limitranges", "list", "LimitRanges are not checked"),
    *_permissions(
        _TRAINER, "clustertrainingruntimes", "get list", "ClusterTrainingRuntimes are not checked", cluster_wide=True
    ),
    *_permissions("storage.k8s.io", "storageclasses", "list", "StorageClasses are not checked", cluster_wide=True),
    *(
        permission
        for resource in ("clusterqueues", "resourceflavors", "topologies")
        for permission in _permissions(_KUEUE, resource, "list", "quotas of queues are not shown", cluster_wide=True)
    ),
)
"""All permissions, the most important first."""


def format_permissions(permissions: Iterable[Permission]) -> str:
    """Return permissions as text, such as `get, list trainjobs; list pods`."""
    groups = groupby(permissions, key=lambda permission: permission.resource)
    return "; ".join(f"{', '.join(each.verb for each in group)} {resource}" for resource, group in groups)


def build_roles(permissions: Sequence[Permission], user: str, namespace: str) -> list[dict[str, Any]]:
    """Return the Roles and bindings that grant these permissions to a user.

    An administrator has to apply them. Cluster-wide permissions get a ClusterRole.

    Args:
        permissions: missing permissions.
        user: name of the user, as the API server has it.
        namespace: namespace of the Role.
    """
    role, cluster_role = (
        _build_role([each for each in permissions if each.cluster_wide is wide], user, "" if wide else namespace)
        for wide in (False, True)
    )
    return [*role, *cluster_role]


def _build_role(permissions: Sequence[Permission], user: str, namespace: str) -> list[dict[str, Any]]:
    if not permissions:
        return []
    kind, metadata = (
        ("Role", {"name": _NAME, "namespace": namespace}) if namespace else ("ClusterRole", {"name": _NAME})
    )
    rules = [
        {"apiGroups": [group], "resources": [resource], "verbs": [each.verb for each in same]}
        for (group, resource), same in groupby(permissions, key=lambda each: (each.group, each.resource))
    ]
    reference = {"apiGroup": _RBAC, "kind": kind, "name": _NAME}
    return [
        {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "roleRef": reference,
            "subjects": [_subject(user)],
        },
    ]


def _subject(user: str) -> dict[str, str]:
    if user.startswith(_ACCOUNT):
        namespace, _, name = user.removeprefix(_ACCOUNT).partition(":")
        return {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    return {"kind": "User", "apiGroup": _RBAC, "name": user}
