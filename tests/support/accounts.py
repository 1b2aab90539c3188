"""Service accounts with few permissions, their tokens and kubeconfigs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.support.kubernetes_client import Client, Object, path_of
from tests.support.polling import wait_until

RBAC = "rbac.authorization.k8s.io"


def create_account(client: Client, namespace: str, name: str = "robot") -> str:
    """Create a service account and return its user name."""
    client.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}, namespace)
    return f"system:serviceaccount:{namespace}:{name}"


def request_token(client: Client, namespace: str, spec: Mapping[str, Any], name: str = "robot") -> Any:
    """Request a token for a service account and return the API server's response."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": dict(spec)}
    return client.request("POST", path_of("ServiceAccount", namespace, name, "token"), body)


def create_token(client: Client, namespace: str, name: str = "robot", **spec: Any) -> str:
    """Return a token of a service account."""
    response = request_token(client, namespace, spec, name)
    assert response.code == 201, response.message
    return str(response.body["status"]["token"])


def grant(client: Client, namespace: str, rules: Sequence[Object], name: str = "robot") -> None:
    """Grant permissions to a service account in its namespace."""
    meta = {"name": name}
    client.create({"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": meta, "rules": list(rules)}, namespace)
    role = {"apiGroup": RBAC, "kind": "Role", "name": name}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    binding = {"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": meta}
    client.create({**binding, "roleRef": role, "subjects": [subject]}, namespace)


def is_allowed(client: Client, namespace: str, verb: str, group: str, resource: str, name: str = "") -> bool:
    """Return whether the API server grants this permission to the client's identity.

    Args:
        client: client of the identity.
        namespace: namespace of the object.
        verb: verb of the permission.
        group: API group of the permission.
        resource: resource of the permission, which may have a subresource.
        name: name of the object; empty for any object.
    """
    plural, _, subresource = resource.partition("/")
    attributes = {"namespace": namespace, "verb": verb, "group": group, "resource": plural, "subresource": subresource}
    attributes |= {"name": name} if name else {}
    response = client.request(
        "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", access_review(attributes)
    )
    assert response.code == 201, response.message
    return bool(response.body["status"]["allowed"])


def access_review(attributes: Mapping[str, str]) -> Object:
    """Return a SelfSubjectAccessReview for a permission."""
    kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    return {**kind, "spec": {"resourceAttributes": dict(attributes)}}


def wait_until_allowed(client: Client, namespace: str, verb: str, group: str, resource: str) -> None:
    """Wait until new permissions are in force.

    A real API server applies new RoleBindings with a short delay.
    """
    wait_until(lambda: is_allowed(client, namespace, verb, group, resource))


def kubeconfig_with_token(kubeconfig: str, token: str, namespace: str) -> str:
    """Return a kubeconfig for the same API server with another bearer token."""
    found = yaml.safe_load(Path(kubeconfig).read_text())
    context = next(one for one in found["contexts"] if one["name"] == found["current-context"])["context"]
    (cluster,) = (one["cluster"] for one in found["clusters"] if one["name"] == context["cluster"])
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": token}}],
        }
    )
