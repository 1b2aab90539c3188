"""The manifests that the project ships, as an administrator applies them."""

from __future__ import annotations

import functools
from contextlib import closing
from pathlib import Path

import yaml

from tests.support.accounts import create_account, create_token, is_allowed
from tests.support.kubernetes_client import Client, Object
from tests.support.polling import wait_until

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
Permission = tuple[str, str, str]
"""API group, resource and verb."""


def load_objects(name: str) -> list[Object]:
    """Return the objects that `kubectl kustomize manifests/NAME` prints.

    test_manifests.py compares them with the output of the real program.
    """
    folder = MANIFESTS / name
    found: list[Object] = []
    for resource in yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]:
        path = folder / resource
        found += load_objects(str(path)) if path.is_dir() else yaml.safe_load_all(path.read_text())
    return found


def granted_permissions(name: str, kind: str = "Role") -> set[Permission]:
    """Return the permissions that the Roles, or the ClusterRoles, of a manifest grant."""
    return {
        (group, resource, verb)
        for role in load_objects(name)
        if role["kind"] == kind
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def list_object_names(name: str) -> dict[Permission, str]:
    """Return the name of the only object to which a permission of a manifest's Roles applies.

    Permissions for any object are left out.
    """
    rules = [rule for role in load_objects(name) if role["kind"] == "Role" for rule in role["rules"]]
    return {
        (group, resource, verb): object_name
        for rule in rules
        for object_name in rule.get("resourceNames", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def apply_roles(client: Client, namespace: str, name: str, account: str, account_namespace: str = "") -> None:
    """Apply a manifest's Roles and RoleBindings for a service account.

    The account belongs to the same namespace by default.
    """
    subject = {"kind": "ServiceAccount", "name": account, "namespace": account_namespace or namespace}
    for found in load_objects(name):
        client.create({**found, "subjects": [subject]} if found["kind"] == "RoleBinding" else found, namespace)


def create_restricted_token(client: Client, namespace: str, name: str, account_namespace: str = "") -> str:
    """Return a token of a new service account that has only a manifest's permissions.

    It has them in `namespace`, and belongs to the same namespace by default. The function waits until the permissions
    are effective in the API server.
    """
    create_account(client, account_namespace or namespace)
    apply_roles(client, namespace, name, "robot", account_namespace)
    made = create_token(client, account_namespace or namespace)
    with closing(client.with_token(made)) as robot:
        names = list_object_names(name)
        for group, resource, verb in granted_permissions(name):
            object_name = names.get((group, resource, verb), "")
            wait_until(functools.partial(is_allowed, robot, namespace, verb, group, resource, object_name))
    return made
