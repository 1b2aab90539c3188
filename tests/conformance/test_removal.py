"""Deletion of single objects and of collections: responses, preconditions, options and finalizers."""

from __future__ import annotations

import pytest

from tests.conformance.idle_objects import KINDS, create_objects, error_of, idle_object, names_of
from tests.support.kubernetes_client import FINALIZER, path_of

QUALIFIED = {"Secret": "Secret", "TrainingRuntime": "TrainingRuntime.trainer.kubeflow.org"}
PLURAL = {"Secret": "secrets", "TrainingRuntime": "trainingruntimes.trainer.kubeflow.org"}


@pytest.mark.parametrize("kind", KINDS)
def test_response_to_a_deletion(client, namespace, kind):
    """An object that is deleted at once gets a Status that names it. A missing object gets 404."""
    (item,) = create_objects(client, namespace, kind, "a")
    path, plural = path_of(kind, namespace, "a"), PLURAL[kind]
    response = client.request("DELETE", path)
    details = {"name": "a", "kind": plural.partition(".")[0], "uid": item["metadata"]["uid"]}
    if kind == "TrainingRuntime":
        details["group"] = "trainer.kubeflow.org"
    assert (response.code, response.body["kind"], response.body["status"]) == (200, "Status", "Success")
    assert response.body["details"] == details
    assert error_of(client.request("DELETE", path)) == (404, "NotFound", f'{plural} "a" not found')


def test_response_with_the_object(client, namespace):
    """The deletion of a service account, claim or pod returns its last state."""
    client.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}}, namespace)
    assert client.delete("ServiceAccount", namespace, "a")["metadata"]["name"] == "a"


@pytest.mark.parametrize("kind", KINDS)
def test_preconditions(client, namespace, kind):
    """A deletion with another UID or resourceVersion as precondition gets 409."""
    (item,) = create_objects(client, namespace, kind, "a")
    path, meta = path_of(kind, namespace, "a"), item["metadata"]
    for part, key, happened in (
        ("UID", "uid", "deleted and then recreated"),
        ("ResourceVersion", "resourceVersion", "modified"),
    ):
        response = client.request("DELETE", path, {"preconditions": {key: "1"}})
        why = f"the {part} in the precondition (1) does not match the {part} in record ({meta[key]}). The object might"
        text = f'Operation cannot be fulfilled on {QUALIFIED[kind]} "a": {why} have been {happened}'
        assert error_of(response) == (409, "Conflict", text)
    right = {key: meta[key] for key in ("uid", "resourceVersion")}
    assert client.request("DELETE", path, {"preconditions": right}).code == 200


INVALID = 'DeleteOptions.meta.k8s.io "" is invalid: '
POLICY = (
    f'{INVALID}propagationPolicy: Unsupported value: "x": supported values: "Foreground", "Background", "Orphan", "nil"'
)
BOTH = "orphanDependents and deletionPropagation cannot be both set"
OPTIONS = [
    (b'{"propagationPolicy":"x"}', 422, POLICY),
    (b'{"propagationPolicy":"Foreground","orphanDependents":true}', 422,
     f'{INVALID}propagationPolicy: Invalid value: "Foreground": {BOTH}'),
    (b'{"dryRun":["x"]}', 422, f'{INVALID}dryRun: Unsupported value: ["x"]: supported values: "All"'),
    (b'{"kind":"Foo","apiVersion":"v1"}', 400,
     'no kind "Foo" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111"'),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_deletion_options(client, namespace, kind):
    """Invalid deletion options are rejected, and nothing is deleted."""
    create_objects(client, namespace, kind, "a")
    path = path_of(kind, namespace, "a")
    assert [(body, *error_of(client.send_raw("DELETE", path, body))[::2]) for body, _, _ in OPTIONS] == OPTIONS
    invalid_bodies = (b'{"gracePeriodSeconds":"x"}', b"{bad")
    assert [client.send_raw("DELETE", path, body).code for body in invalid_bodies] == [400, 400]
    assert error_of(client.request("DELETE", path, propagationPolicy="x"))[::2] == (422, POLICY)
    assert client.get(kind, namespace, "a")


@pytest.mark.parametrize("kind", KINDS)
def test_finalizers(client, namespace, kind):
    """An object with a finalizer keeps its name, takes no new finalizers, and is deleted with the last one."""
    create_objects(client, namespace, kind, "a", finalizers=[FINALIZER])
    terminating = client.delete(kind, namespace, "a")
    assert terminating["metadata"]["deletionTimestamp"] and terminating["metadata"]["deletionGracePeriodSeconds"] == 0
    again = client.delete(kind, namespace, "a")  # meanwhile Trainer 2.1 may have written to an object of its own kind
    assert again["metadata"]["deletionTimestamp"] == terminating["metadata"]["deletionTimestamp"]
    assert kind != "Secret" or again == terminating
    response = client.request("POST", path_of(kind, namespace), idle_object(kind, "a"))
    taken = f'object is being deleted: {PLURAL[kind]} "a" already exists'
    assert error_of(response) == (409, "AlreadyExists", taken)
    response = client.request(
        "PATCH", path_of(kind, namespace, "a"), {"metadata": {"finalizers": [FINALIZER, "example.org/x"]}}
    )
    why = "no new finalizers can be added if the object is being deleted, found new finalizers []string"
    text = f'{QUALIFIED[kind]} "a" is invalid: metadata.finalizers: Forbidden: {why}{{"example.org/x"}}'
    assert error_of(response) == (422, "Invalid", text)
    labels = {"labels": {"still": "changed"}, "deletionTimestamp": None}
    changed = client.patch(kind, namespace, "a", {"metadata": labels})
    assert changed["metadata"]["deletionTimestamp"] == terminating["metadata"]["deletionTimestamp"]
    client.remove_finalizers(kind, namespace, "a")
    assert client.find(kind, namespace, "a") is None
    create_objects(client, namespace, kind, "a")


def test_propagation_policies(client, namespace):
    """The propagation policy becomes a finalizer. The policy of a later deletion replaces it."""
    create_objects(client, namespace, "Secret", "a", finalizers=[FINALIZER])
    for policy, own in (("Foreground", ["foregroundDeletion"]), ("Orphan", ["orphan"]), ("Background", [])):
        found = client.delete("Secret", namespace, "a", propagationPolicy=policy)["metadata"]["finalizers"]
        assert sorted(found) == sorted([FINALIZER, *own])
    client.remove_finalizers("Secret", namespace, "a")


@pytest.mark.parametrize("kind", KINDS)
def test_collection_deletion(client, namespace, kind):
    """A collection deletion deletes the objects that its selector selects, and returns them."""
    create_objects(client, namespace, kind, "ab", labels={"color": "red"})
    create_objects(client, namespace, kind, "c")
    path = path_of(kind, namespace)
    dry_run = client.request("DELETE", path, fieldSelector="metadata.name=c", dryRun="All").body
    assert names_of(dry_run["items"]) == ["c"]
    response = client.request("DELETE", path, labelSelector="color=red").body
    assert (response["kind"], names_of(response["items"])) == (f"{kind}List", ["a", "b"])
    assert client.request("DELETE", path, labelSelector="a in (").code == 400
    assert names_of(client.list(kind, namespace)) == ["c"]
