"""The manifests that the project ships, as an administrator applies them."""

from __future__ import annotations

import functools
from contextlib import closing
from pathlib import Path

import yaml

from tests.support.accounts import account, may, token_of
from tests.support.kubernetes_client import Client, Object
from tests.support.polling import until

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
Right = tuple[str, str, str]
"""API group, resource and verb."""


def objects(name: str) -> list[Object]:
    """Return the objects that `kubectl kustomize manifests/NAME` prints.

    test_manifests.py compares them with the output of the real program.
    """
    folder = MANIFESTS / name
    found: list[Object] = []
    for resource in yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]:
        path = folder / resource
        found += objects(str(path)) if path.is_dir() else yaml.safe_load_all(path.read_text())
    return found


def rights(name: str, kind: str = "Role") -> set[Right]:
    """Return the rights that the Roles, or the ClusterRoles, of a manifest grant."""
    return {
        (group, resource, verb)
        for role in objects(name)
        if role["kind"] == kind
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def apply(client: Client, namespace: str, name: str, account: str) -> None:
    """Apply a manifest's Roles and RoleBindings for a service account of the namespace."""
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    for found in objects(name):
        client.create({**found, "subjects": [subject]} if found["kind"] == "RoleBinding" else found, namespace)


def token(client: Client, namespace: str, name: str) -> str:
    """Return a token of a new service account that has only the rights of a manifest.

    The function waits until the API server grants them.
    """
    account(client, namespace)
    apply(client, namespace, name, "robot")
    made = token_of(client, namespace)
    with closing(client.as_bearer(made)) as robot:
        for group, resource, verb in rights(name):
            until(functools.partial(may, robot, namespace, verb, group, resource))
    return made
