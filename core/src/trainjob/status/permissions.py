"""Permissions that TrainJobs need, and the Roles that grant missing permissions.

The table also has the consequence of each missing permission. manifests/person and manifests/cluster grant the same
permissions; a test compares them with this table.
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
        consequence: consequence of not having this permission.
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
    *_permissions(_TRAINER, "trainjobs", "create", "nothing can be submitted", required=True),
    *_permissions(_TRAINER, "trainjobs", "get list", "nothing can be adopted or waited for", required=True),
    *_permissions(_TRAINER, "trainjobs", "delete", "nothing can be cancelled", required=True),
    *_permissions(_TRAINER, "trainjobs", "watch", "waiting asks again and again"),
    *_permissions(_TRAINER, "trainjobs", "patch", "nothing can be suspended, resumed or taken over"),
    *_permissions("", "pods", "list", "it can't be told whether a name is free again", required=True),
    *_permissions("", "pods", "watch", "failures and missing images are seen late, or at the end"),
    *_permissions("", "pods/log", "get", "there are no logs"),
    *_permissions("", "events", "list", "it is not told why nothing happens"),
    *_permissions("jobset.x-k8s.io", "jobsets", "get", "it is not told which rule of a runtime ended a TrainJob"),
    *_permissions(_TRAINER, "trainingruntimes", "get list", "runtimes of the namespace are not checked"),
    *_permissions(_KUEUE, "workloads", "list", "it is not told why a TrainJob in a queue waits"),
    *_permissions(_KUEUE, "localqueues", "list", "queues are not checked"),
    *_permissions("", "persistentvolumeclaims", "get", "a sweep keeps what it can't look at"),
    *_permissions("", "persistentvolumeclaims", "list", "claims are not checked"),
    *_permissions(
        _TRAINER, "clustertrainingruntimes", "get list", "the cluster's runtimes are not checked", cluster_wide=True
    ),
    *_permissions("storage.k8s.io", "storageclasses", "list", "storage classes are not checked", cluster_wide=True),
)
"""All permissions, the most important first."""


def format_permissions(permissions: Iterable[Permission]) -> str:
    """Return permissions as text, such as `get, list trainjobs; list pods`."""
    parts = groupby(permissions, key=lambda right: right.resource)
    return "; ".join(f"{', '.join(right.verb for right in found)} {resource}" for resource, found in parts)


def build_roles(permissions: Sequence[Permission], user: str, namespace: str) -> list[dict[str, Any]]:
    """Return the Roles and bindings that grant these permissions to a user.

    A user with the right to grant the permissions has to apply them. Cluster-wide permissions get a ClusterRole.

    Args:
        rights: missing permissions.
        user: name of the user, as the API server has it.
        namespace: namespace of the Role.
    """
    within, beyond = (
        _build_role([right for right in permissions if right.cluster_wide is wide], user, "" if wide else namespace)
        for wide in (False, True)
    )
    return [*within, *beyond]


def _build_role(permissions: Sequence[Permission], user: str, namespace: str) -> list[dict[str, Any]]:
    if not permissions:
        return []
    kind, metadata = (
        ("Role", {"name": _NAME, "namespace": namespace}) if namespace else ("ClusterRole", {"name": _NAME})
    )
    rules = [
        {"apiGroups": [group], "resources": [resource], "verbs": [right.verb for right in found]}
        for (group, resource), found in groupby(permissions, key=lambda right: (right.group, right.resource))
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
