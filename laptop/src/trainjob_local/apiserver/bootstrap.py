"""Objects of a new cluster: namespaces, service accounts and ClusterRoles.

The ClusterRoles are those for administrators, discovery, health checks and access reviews.
Source: kube-apiserver 1.36.3 (`plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainjob_local.apiserver.object_registry import ObjectRegistry
from trainjob_local.apiserver.status_errors import StatusError

__all__ = ["add_default_account", "create_bootstrap_objects"]

_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_RBAC = "rbac.authorization.k8s.io"
_UNAUTHENTICATED, _AUTHENTICATED = "system:unauthenticated", "system:authenticated"
_ALL = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
_HEALTH = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_DISCOVERY = ("/api", "/api/*", "/apis", "/apis/*", *_HEALTH, "/openapi", "/openapi/*")
_REVIEW_RULES = [
    {
        "apiGroups": ["authorization.k8s.io"],
        "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
        "verbs": ["create"],
    },
    {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]},
]
_ROLES: Mapping[str, tuple[Sequence[Mapping[str, Any]], Sequence[str]]] = {
    "cluster-admin": ([_ALL, {"nonResourceURLs": ["*"], "verbs": ["*"]}], ["system:masters"]),
    "system:discovery": ([{"nonResourceURLs": list(_DISCOVERY), "verbs": ["get"]}], [_AUTHENTICATED]),
    "system:basic-user": (_REVIEW_RULES, [_AUTHENTICATED]),
    "system:public-info-viewer": (
        [{"nonResourceURLs": list(_HEALTH), "verbs": ["get"]}],
        [_AUTHENTICATED, _UNAUTHENTICATED],
    ),
}


def create_bootstrap_objects(registry: ObjectRegistry) -> None:
    """Create the missing bootstrap objects.

    Existing objects stay unchanged, because users may have changed them.
    """
    for namespace in _NAMESPACES:
        _ensure(registry, "namespaces", {"metadata": {"name": namespace}})
        add_default_account(registry, namespace)
    for name, (rules, groups) in _ROLES.items():
        metadata = {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}
        subjects = [{"kind": "Group", "apiGroup": _RBAC, "name": group} for group in groups]
        role = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name}
        _ensure(registry, "clusterroles", {"metadata": metadata, "rules": list(rules)})
        _ensure(registry, "clusterrolebindings", {"metadata": metadata, "roleRef": role, "subjects": subjects})


def add_default_account(registry: ObjectRegistry, namespace: str) -> None:
    """Create the service account `default` of a namespace if it does not exist.

    In a real cluster the service account controller creates it for each namespace.
    """
    _ensure(registry, "serviceaccounts", {"metadata": {"name": "default"}}, namespace)


def _ensure(registry: ObjectRegistry, plural: str, body: Mapping[str, Any], namespace: str = "") -> None:
    try:
        registry.create(plural, body, namespace)
    except StatusError as error:
        if error.reason != "AlreadyExists":
            raise
