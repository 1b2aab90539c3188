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
    """Return what `kubectl kustomize manifests/NAME` prints; test_manifests.py compares it with the real program."""
    folder = MANIFESTS / name
    found: list[Object] = []
    for resource in yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]:
        path = folder / resource
        found += objects(str(path)) if path.is_dir() else yaml.safe_load_all(path.read_text())
    return found


def rights(name: str, kind: str = "Role") -> set[Right]:
    """What its Roles grant, or its ClusterRoles."""
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
    """Applies its Roles and bindings, with a service account of the namespace in its subjects' place."""
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    for found in objects(name):
        client.create({**found, "subjects": [subject]} if found["kind"] == "RoleBinding" else found, namespace)


def token(client: Client, namespace: str, name: str) -> str:
    """A token of a new service account that has what the manifest grants and nothing else, once that is in force."""
    account(client, namespace)
    apply(client, namespace, name, "robot")
    made = token_of(client, namespace)
    with closing(client.as_bearer(made)) as robot:
        for group, resource, verb in rights(name):
            until(functools.partial(may, robot, namespace, verb, group, resource))
    return made
