"""Tests of access control: tokens, anonymous users, Roles and RoleBindings."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.integration.local.served_registry import TRAINJOBS, ServedRegistry, pod, serve_registry, trainjob
from trainjob_local.apiserver import Registry

PODS = "/api/v1/namespaces/default/pods"
USER = 'User "system:serviceaccount:default:robot"'


@pytest.fixture
def served() -> Iterator[ServedRegistry]:
    with serve_registry() as opened:
        opened.registry.create("serviceaccounts", {"metadata": {"name": "robot"}}, "default")
        yield opened


def create_token(served: ServedRegistry, **spec: Any) -> str:
    return str(served.registry.tokens.create("default", "robot", spec)["status"]["token"])


def create_role(
    served: ServedRegistry, rules: list[dict[str, Any]], *, cluster: bool = False, subject: dict[str, str] | None = None
) -> None:
    """Grant permissions to the robot or to `subject`, in one namespace or in the cluster."""
    role, binding, namespace = (
        ("clusterroles", "clusterrolebindings", "") if cluster else ("roles", "rolebindings", "default")
    )
    created = served.registry.create(role, {"metadata": {"generateName": "r-"}, "rules": rules}, namespace)
    name = created["metadata"]["name"]
    role_subject = subject or {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole" if cluster else "Role", "name": name}
    body = {"metadata": {"name": name}, "roleRef": reference, "subjects": [role_subject]}
    served.registry.create(binding, body, namespace)


def test_tokens_expire_or_end_with_their_pod_or_account() -> None:
    now = [datetime(2026, 1, 1, tzinfo=timezone.utc)]
    with serve_registry(Registry(clock=lambda: now[0])) as served:
        served.registry.create("serviceaccounts", {"metadata": {"name": "robot"}}, "default")
        made = served.registry.create("pods", pod("p"), "default")
        timed, long = create_token(served, expirationSeconds=600), create_token(served, expirationSeconds=9000)
        bound = create_token(
            served, boundObjectRef={"kind": "Pod", "name": "p", "uid": made["metadata"]["uid"]}, expirationSeconds=9000
        )
        other = create_token(served, audiences=["somebody"])
        codes = [served.request("GET", "/version", token=each).code for each in (timed, long, bound, other)]
        assert codes == [200, 200, 200, 401]
        now[0] += timedelta(seconds=600)
        served.registry.delete("pods", "p", "default")
        codes = [served.request("GET", "/version", token=each).code for each in (timed, long, bound)]
        assert codes == [401, 200, 401]
        served.registry.delete("serviceaccounts", "robot", "default")
        served.registry.create("serviceaccounts", {"metadata": {"name": "robot"}}, "default")  # another one
        assert served.request("GET", "/version", token=long).code == 401


def test_tokens_are_stored_as_hashes(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    made = registry.tokens.create("default", "default")["status"]["token"]
    registry.close()
    with sqlite3.connect(tmp_path / "objects.sqlite3") as database:
        dump = "\n".join(database.iterdump())
    database.close()
    assert 'INSERT INTO "tokens"' in dump
    assert made not in dump
    reopened = Registry(tmp_path)
    user = reopened.tokens.authenticate(made)
    reopened.close()
    assert user is not None
    assert user.name == "system:serviceaccount:default:default"
    assert (tmp_path / "objects.sqlite3").stat().st_mode & 0o077 == 0


def test_a_role_grants_exactly_its_permissions(served: ServedRegistry) -> None:
    robot = create_token(served)
    group = "trainer.kubeflow.org"
    create_role(
        served,
        [{"apiGroups": [group], "resources": ["trainjobs"], "verbs": ["create", "get", "list", "watch", "delete"]}],
    )
    create_role(served, [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}])
    assert served.request("POST", TRAINJOBS, trainjob("a"), token=robot).code == 201
    assert served.request("GET", TRAINJOBS, token=robot).code == 200
    assert served.request("GET", f"{TRAINJOBS}?watch=1&resourceVersion=1", token=robot).code == 200
    for method, path, what in [
        ("GET", f"{PODS}/p/log", 'pods "p" is forbidden: {} cannot get resource "pods/log" in API group ""'),
        (
            "PUT",
            f"{TRAINJOBS}/a",
            'trainjobs.{g} "a" is forbidden: {} cannot update resource "trainjobs" in API group "{g}"',
        ),
        (
            "PATCH",
            f"{TRAINJOBS}/a/status",
            'trainjobs.{g} "a" is forbidden: {} cannot patch resource "trainjobs/status" in',
        ),
        (
            "DELETE",
            TRAINJOBS,
            'trainjobs.{g} is forbidden: {} cannot deletecollection resource "trainjobs" in API group',
        ),
        (
            "GET",
            f"{PODS}",
            'pods is forbidden: {} cannot list resource "pods" in API group "" in the namespace "default"',
        ),
        (
            "GET",
            f"{PODS}?watch=1",
            'pods is forbidden: {} cannot watch resource "pods" in API group "" in the namespace',
        ),
        (
            "GET",
            "/api/v1/pods",
            'pods is forbidden: {} cannot list resource "pods" in API group "" at the cluster scope',
        ),
        ("GET", "/faults", 'forbidden: {} cannot use path "/faults"'),
    ]:
        response = served.request(method, path, token=robot)
        assert response.code == 403, path
        assert response.message.startswith(what.format(USER, g=group)), response.message
    assert served.request("GET", f"{PODS}/p", token=robot).code == 404  # allowed, but not there
    other = TRAINJOBS.replace("default", "kube-system")
    assert served.request("GET", other, token=robot).message.endswith('in the namespace "kube-system"')


@pytest.mark.parametrize(
    ("rule", "path", "code"),
    [
        ({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, PODS, 200),
        ({"apiGroups": [""], "resources": ["pods/*"], "verbs": ["get"]}, f"{PODS}/p/log", 403),
        ({"apiGroups": [""], "resources": ["*/log"], "verbs": ["get"]}, f"{PODS}/p/log", 204),
        (
            {"apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"], "verbs": ["get", "list"]},
            f"{PODS}/p",
            200,
        ),
        (
            {"apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"], "verbs": ["get", "list"]},
            f"{PODS}/q",
            403,
        ),
        ({"apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"], "verbs": ["get", "list"]}, PODS, 403),
        (
            {"apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"], "verbs": ["get", "list"]},
            f"{PODS}?fieldSelector=metadata.name%3Dp",
            200,
        ),
        ({"apiGroups": ["batch"], "resources": ["pods"], "verbs": ["list"]}, PODS, 403),
    ],
)
def test_wildcards_and_names(served: ServedRegistry, rule: dict[str, Any], path: str, code: int) -> None:
    served.registry.create("pods", pod("p"), "default")
    create_role(served, [rule])
    assert served.request("GET", path, token=create_token(served)).code == code


def test_cluster_wide_permissions_and_groups(served: ServedRegistry) -> None:
    everybody = {"kind": "Group", "name": "system:serviceaccounts:default", "apiGroup": "rbac.authorization.k8s.io"}
    create_role(
        served, [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}], cluster=True, subject=everybody
    )
    create_role(served, [{"nonResourceURLs": ["/metrics*"], "verbs": ["get"]}], cluster=True)
    robot = create_token(served)
    assert served.request("GET", "/api/v1/nodes", token=robot).code == 200
    assert served.request("GET", "/metrics/x", token=robot).code == 404
    assert served.request("GET", "/other", token=robot).code == 403
