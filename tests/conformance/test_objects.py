"""Creation of objects: their identity, and invalid requests with the exact messages."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.conformance.idle_objects import KINDS, create_objects, error_of, idle_object, names_of, resource_version_of
from tests.support.kubernetes_client import FINALIZER, path_of

SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
KEY = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
QUALIFIED = {"Secret": "Secret", "TrainingRuntime": "TrainingRuntime.trainer.kubeflow.org"}


@pytest.mark.parametrize("kind", KINDS)
def test_server_side_identity(client, namespace, kind):
    """The API server sets UID, creation time and resourceVersion of a new object; sent values are ignored."""
    sent = {"uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z", "resourceVersion": "", "labels": {"a": "b"}}
    created = client.create(idle_object(kind, "a", **sent), namespace)
    meta = created["metadata"]
    assert (meta["name"], meta["namespace"], meta["labels"]) == ("a", namespace, {"a": "b"})
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", meta["uid"])
    assert meta["creationTimestamp"] > "2025"
    assert int(meta["resourceVersion"]) > 0
    assert meta.get("generation") == (1 if kind == "TrainingRuntime" else None)
    assert client.get(kind, namespace, "a") == created


@pytest.mark.parametrize("kind", KINDS)
def test_generated_names(client, namespace, kind):
    """generateName gets a suffix of five letters or digits that cannot be mixed up. A long prefix is cut."""
    body = idle_object(kind, "")
    body["metadata"] = {"generateName": "some-"}
    found = {client.create(body, namespace)["metadata"]["name"] for _ in range(3)}
    assert len(found) == 3
    assert all(re.fullmatch("some-[bcdfghjklmnpqrstvwxz2456789]{5}", name) for name in found)
    body["metadata"] = {"generateName": "x" * 70}
    assert re.fullmatch("x{58}[a-z0-9]{5}", client.create(body, namespace)["metadata"]["name"])
    body["metadata"] = {"generateName": "some-", "name": "given"}
    assert client.create(body, namespace)["metadata"]["name"] == "given"


@pytest.mark.parametrize("kind", KINDS)
def test_names_in_use(client, namespace, kind):
    """A name that is in use gets 409 AlreadyExists, also in a dry run."""
    create_objects(client, namespace, kind, "a")
    plural = "secrets" if kind == "Secret" else "trainingruntimes.trainer.kubeflow.org"
    for query in ({}, {"dryRun": "All"}):
        response = client.request("POST", path_of(kind, namespace), idle_object(kind, "a"), **query)
        assert error_of(response) == (409, "AlreadyExists", f'{plural} "a" already exists')
        group = {"group": "trainer.kubeflow.org"} if kind == "TrainingRuntime" else {}
        assert response.body["details"] == {"name": "a", "kind": plural.partition(".")[0], **group}


INVALID_METADATA = 'metadata.{}: Invalid value: "{}": {}'
METADATA: list[tuple[dict[str, Any] | None, str]] = [
    ({}, "metadata.name: Required value: name or generateName is required"),
    ({"name": "Bad_Name"}, INVALID_METADATA.format("name", "Bad_Name", SUBDOMAIN)),
    ({"name": "a" * 254}, INVALID_METADATA.format("name", "a" * 254, "must be no more than 253 characters")),
    ({"labels": {"a b": "c"}}, INVALID_METADATA.format("labels", "a b", f"name part {KEY}")),
    ({"labels": {"a": "b c"}}, INVALID_METADATA.format("labels", "b c", VALUE)),
    ({"labels": {"a": "b" * 64}}, INVALID_METADATA.format("labels", "b" * 64, "must be no more than 63 bytes")),
    (
        {"labels": {"a" * 64: ""}},
        INVALID_METADATA.format("labels", "a" * 64, "name part must be no more than 63 bytes"),
    ),
    ({"labels": {"UP.com/x": ""}}, INVALID_METADATA.format("labels", "UP.com/x", f"prefix part {SUBDOMAIN}")),
    ({"labels": {"/x": ""}}, INVALID_METADATA.format("labels", "/x", "prefix part must be non-empty")),
    (
        {"labels": {"a/b/c": ""}},
        INVALID_METADATA.format(
            "labels",
            "a/b/c",
            f"a valid label key {KEY} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
        ),
    ),
    ({"annotations": {"a b": "any thing"}}, INVALID_METADATA.format("annotations", "a b", f"name part {KEY}")),
    ({"annotations": {"a": "b" * 2**18}}, "metadata.annotations: Too long: may not be more than 262144 bytes"),
    ({"finalizers": ["a b/c"]}, INVALID_METADATA.format("finalizers", "a b/c", f"prefix part {SUBDOMAIN}")),
    (
        {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p"}]},
        INVALID_METADATA.format("ownerReferences.uid", "", "must not be empty"),
    ),
]
MORE = "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the "


@pytest.mark.parametrize("kind", KINDS)
def test_invalid_metadata(client, namespace, kind):
    """Invalid names, labels, annotations, finalizers and ownerReferences get 422."""
    for meta, problem in METADATA:
        body = {**idle_object(kind, "a"), "metadata": {}}
        if meta:
            body = idle_object(kind, **{"name": "a", **meta})
        response = client.request("POST", path_of(kind, namespace), body, dryRun="All")
        code, reason, text = error_of(response)
        head = f'{QUALIFIED[kind]} "{meta.get("name", "a") if meta else ""}" is invalid: '
        assert (code, reason) == (422, "Invalid"), meta
        assert text.startswith(head)
        rest = text.removeprefix(head).removeprefix("[")
        assert rest in (problem, f"{problem}, {MORE}existing errors to complete validation]")
    good = {"labels": {"example.org/a": "", "c": "x" * 63}, "annotations": {"Any/Key": "any value\n"}}
    create_objects(client, namespace, kind, "a", **good)


@pytest.mark.parametrize("kind", KINDS)
def test_null_as_owner(client, namespace, kind):
    """A null among the ownerReferences is an empty reference, and gets 422."""
    create_objects(client, namespace, kind, "a")
    path, meta = path_of(kind, namespace, "a"), {"ownerReferences": [None]}
    patched = client.request("PATCH", path, {"metadata": meta}, content_type="application/merge-patch+json")
    created = client.request("POST", path_of(kind, namespace), idle_object(kind, "b", **meta))
    for response in (patched, created):
        code, reason, text = error_of(response)
        assert (code, reason) == (422, "Invalid")
        for part in ("apiVersion", "kind", "name", "uid"):
            assert f'metadata.ownerReferences.{part}: Invalid value: ""' in text


def test_bodies_that_are_not_json(client, namespace):
    """A body that is not JSON gets 400."""
    for kind in KINDS:
        for body in (b"{bad", b"", b'{"metadata":', b"{}x", b'{"a" 1}', b'{"a":1 "b"}', b"nothing"):
            response = client.send_raw("POST", path_of(kind, namespace), body)
            assert (response.code, response.reason) == (400, "BadRequest"), body


def test_media_types(client, namespace):
    """A body with a media type other than JSON, YAML or protobuf gets 415."""
    text = (
        "the body of the request was in an unknown format - accepted media types include: application/json, "
        "application/yaml, application/vnd.kubernetes.protobuf"
    )
    for kind in KINDS:
        response = client.send_raw("POST", path_of(kind, namespace), b"{}", "text/plain")
        assert error_of(response) == (415, "UnsupportedMediaType", text)
    body = json.dumps(idle_object("Secret", "a")).encode()
    assert client.send_raw("POST", path_of("Secret", namespace), body, "application/json; charset=utf-8").code == 201


def test_large_bodies(client, namespace):
    """A body of more than 3 MiB gets 413."""
    body = {**idle_object("Secret", "a"), "stringData": {"a": "b" * (3 << 20)}}
    response = client.request("POST", path_of("Secret", namespace), body)
    assert error_of(response) == (413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728")


def test_bodies_that_do_not_match_the_path(client, namespace):
    """An object of another kind, version or namespace than the path gets 400 or 422."""
    runtime, secret = path_of("TrainingRuntime", namespace), path_of("Secret", namespace)
    own, other = (
        idle_object("TrainingRuntime", "a"),
        "the namespace of the provided object does not match the namespace sent",
    )
    unset = "should not be set on objects to be created"
    cannot = 'in version "v{}" cannot be handled as a Secret: '
    converting = "converting (v1.ConfigMap) to (core.Secret): unknown conversion"
    no_kind = 'no kind "Secret" is registered for version "v2" in scheme "pkg/runtime/scheme.go:111"'
    expected = "does not match the expected API version (trainer.kubeflow.org/v1alpha1)"
    wrong = 'kind: Invalid value: "Foo": must be TrainingRuntime'
    rows = [
        (runtime, {**own, "kind": "Foo"}, 422, f'Foo.trainer.kubeflow.org "a" is invalid: {wrong}'),
        (runtime, {**own, "apiVersion": "v1"}, 400, f"the API version in the data (v1) {expected}"),
        (runtime, idle_object("TrainingRuntime", "a", namespace="x"), 400, f"{other} on the request"),
        (secret, {**idle_object("Secret", "a"), "kind": "ConfigMap"}, 400, f"ConfigMap {cannot.format(1)}{converting}"),
        (secret, {**idle_object("Secret", "a"), "apiVersion": "v2"}, 400, f"Secret {cannot.format(2)}{no_kind}"),
        (secret, idle_object("Secret", "a", namespace="x"), 400, f"{other} on the request"),
        (secret, idle_object("Secret", "a", resourceVersion="3"), 500, f"resourceVersion {unset}"),
    ]
    responses = [(path, body, *error_of(client.request("POST", path, body))[::2]) for path, body, _, _ in rows]
    assert responses == rows
    assert client.request("POST", secret, {"metadata": {"name": "a"}}).code == 201  # kind and version are the path's


PAGE, NOT_ALLOWED = "404 page not found\n", "the server does not allow this method on the requested resource"
UNKNOWN = "the server could not find the requested resource"
OF_KIND = '{} is not supported on resources of kind "trainjobs.trainer.kubeflow.org"'
PATHS = [
    ("GET", "{core}/secrets/nope", 404, 'secrets "nope" not found'),
    ("GET", "{trainer}/trainjobs/nope", 404, 'trainjobs.trainer.kubeflow.org "nope" not found'),
    ("GET", "{trainer}/trainjobs/nope/scale", 404, 'trainjobs.trainer.kubeflow.org "nope" not found'),
    ("GET", "{core}/secrets/a/status", 404, UNKNOWN),
    ("GET", "{core}/foos", 404, UNKNOWN),
    ("GET", "/api/v2/namespaces", 404, UNKNOWN),
    ("GET", "{trainer}/foos", 404, PAGE),
    ("GET", "/apis/trainer.kubeflow.org/v1/trainjobs", 404, PAGE),
    ("GET", "/apis/example.org/v1/foos", 404, PAGE),
    ("GET", "/nope", 404, PAGE),
    ("POST", "/api/v1/secrets", 405, NOT_ALLOWED),
    ("POST", "/apis/trainer.kubeflow.org/v1alpha1/trainjobs", 404, PAGE),
    ("POST", "{core}/secrets/a", 405, NOT_ALLOWED),
    ("PUT", "{core}/secrets", 405, NOT_ALLOWED),
    ("PATCH", "{trainer}/trainjobs", 400, "name must be provided"),
    ("POST", "{trainer}/trainjobs/a/status", 405, OF_KIND.format("create")),
    ("DELETE", "{trainer}/trainjobs/a/status", 405, OF_KIND.format("delete")),
    ("DELETE", "/api/v1/secrets", 405, NOT_ALLOWED),
    ("DELETE", "/api/v1/namespaces", 405, NOT_ALLOWED),
]


def test_paths(client, namespace):
    """A missing object or path gets 404; an operation that a path does not support gets 405."""
    core = f"/api/v1/namespaces/{namespace}"
    trainer = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}"
    responses = []
    for method, path, _, _ in PATHS:
        response = client.request(
            method, path.format(core=core, trainer=trainer), None if method in ("GET", "DELETE") else {}
        )
        responses.append((method, path, response.code, response.message))
    assert responses == PATHS


def test_dry_run(client, namespace):
    """A dry run is checked like any other write, and stores nothing."""
    path = path_of("Secret", namespace)
    tried = client.create(idle_object("Secret", "a"), namespace, dryRun="All")
    assert tried["metadata"]["uid"] and "resourceVersion" not in tried["metadata"]
    (stored,) = create_objects(client, namespace, "Secret", "b")
    change = client.request("PATCH", f"{path}/b", {"metadata": {"labels": {"a": "b"}}}, dryRun="All")
    assert change.body["metadata"]["labels"] == {"a": "b"}
    for query, body in (({"dryRun": "All"}, None), ({}, {"dryRun": ["All"]})):
        assert client.request("DELETE", f"{path}/b", body, **query).code == 200
    assert names_of(client.list("Secret", namespace)) == ["b"]
    assert resource_version_of(client.get("Secret", namespace, "b")) == resource_version_of(stored)
    text = 'CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["x"]: supported values: "All"'
    assert error_of(client.request("POST", path, idle_object("Secret", "c"), dryRun="x")) == (422, "Invalid", text)


def test_namespaces(client, namespace):
    """Nothing can be created in a missing or terminating namespace. Deleting such a namespace again succeeds."""
    text = f'namespaces "no-{namespace}" not found'
    for kind in KINDS:
        assert error_of(client.request("POST", path_of(kind, f"no-{namespace}"), idle_object(kind, "a"))) == (
            404,
            "NotFound",
            text,
        )
    own = f"{namespace}-own"
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": own}})
    create_objects(client, own, "Secret", ["held"], finalizers=[FINALIZER])
    for _ in range(2):
        terminating = client.delete("Namespace", None, own)
        phase, metadata = terminating["status"]["phase"], terminating["metadata"]
        assert (phase, bool(metadata["deletionTimestamp"])) == ("Terminating", True)
    for kind, plural in zip(KINDS, ("secrets", "trainingruntimes.trainer.kubeflow.org"), strict=True):
        why = f"unable to create new content in namespace {own} because it is being terminated"
        response = client.request("POST", path_of(kind, own), idle_object(kind, "late"))
        assert error_of(response) == (403, "Forbidden", f'{plural} "late" is forbidden: {why}')
        (cause,) = response.body["details"]["causes"]
        assert (cause["reason"], cause["field"]) == ("NamespaceTerminating", "metadata.namespace")
    client.remove_finalizers("Secret", own, "held")
