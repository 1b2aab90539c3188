"""Changes of objects: replace, patch, conflicts, and the status subresource."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conformance.idle_objects import KINDS, create_objects, error_of, idle_object, resource_version_of
from tests.support.kubernetes_client import path_of
from tests.support.trainjobs import shell

JSON, STRATEGIC = "application/json-patch+json", "application/strategic-merge-patch+json"
PLURAL = {"Secret": "secrets", "TrainingRuntime": "trainingruntimes.trainer.kubeflow.org"}
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
REQUEST_ERROR = "the server rejected our request due to an error in our request"
FORMAT = (
    "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, "
    "application/merge-patch+json, application/apply-patch+yaml"
)


def conflict(kind, message=MODIFIED):
    return 409, "Conflict", f'Operation cannot be fulfilled on {PLURAL[kind]} "a": {message}'


def with_meta(item, **metadata):
    return {**item, "metadata": {**item["metadata"], **metadata}}


@pytest.mark.parametrize("kind", KINDS)
def test_replace_needs_the_current_version(client, namespace, kind):
    """A PUT with the current resourceVersion replaces an object. An older resourceVersion gets 409."""
    (first,) = create_objects(client, namespace, kind, "a")
    path = path_of(kind, namespace, "a")
    response = client.request("PUT", path, with_meta(first, labels={"a": "1"}))
    assert (response.code, response.body["metadata"]["labels"]) == (200, {"a": "1"})
    assert int(resource_version_of(response.body)) > int(resource_version_of(first))
    assert error_of(client.request("PUT", path, with_meta(first, labels={"a": "2"}))) == conflict(kind)
    assert client.get(kind, namespace, "a")["metadata"]["labels"] == {"a": "1"}


@pytest.mark.parametrize("kind", KINDS)
def test_replace_needs_name_and_uid(client, namespace, kind):
    """A PUT needs the name and the UID of the existing object."""
    (item,) = create_objects(client, namespace, kind, "a")
    own_path, other_path = path_of(kind, namespace, "a"), path_of(kind, namespace, "b")
    other = with_meta(item, name="b", uid="")
    nameless = "the name of the object (a based on URL) was undeterminable: name must be provided"
    rows = [
        (other_path, item, 400, "the name of the object (a) does not match the name on the URL (b)"),
        (own_path, with_meta(item, name=""), 400, nameless),
        (other_path, other, 404, f'{PLURAL[kind]} "b" not found'),
        (own_path, with_meta(item, resourceVersion="abc"), 500, 'strconv.ParseUint: parsing "abc": invalid syntax'),
    ]
    assert [(where, body, *error_of(client.request("PUT", where, body))[::2]) for where, body, _, _ in rows] == rows
    response = client.request("PUT", own_path, with_meta(item, uid="another"))
    assert (response.code, response.reason) == (409, "Conflict")
    assert f"UID in precondition: another, UID in object meta: {item['metadata']['uid']}" in response.message


def test_replace_without_a_version(client, namespace):
    """A PUT without a resourceVersion replaces an object of a built-in kind. For a custom resource it gets 422."""
    create_objects(client, namespace, "Secret", "a")
    create_objects(client, namespace, "TrainingRuntime", "a")
    secret = idle_object("Secret", "a", labels={"a": "b"})
    assert client.request("PUT", path_of("Secret", namespace, "a"), secret).code == 200
    text = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    invalid = (422, "Invalid", f'{PLURAL["TrainingRuntime"]} "a" is invalid: {text}')
    path = path_of("TrainingRuntime", namespace, "a")
    assert error_of(client.request("PUT", path, idle_object("TrainingRuntime", "a"))) == invalid
    assert error_of(client.request("PATCH", path, {"metadata": {"resourceVersion": None}})) == invalid


@pytest.mark.parametrize("kind", KINDS)
def test_concurrent_writes(client, namespace, kind):
    """If many requests create one name or replace one version, one succeeds and the others get 409."""
    with ThreadPoolExecutor(6) as pool:
        path = path_of(kind, namespace)
        codes = list(pool.map(lambda _: client.request("POST", path, idle_object(kind, "a")).code, range(6)))
        assert sorted(codes) == [201] + [409] * 5
        item = client.get(kind, namespace, "a")
        changes = [with_meta(item, labels={"by": str(number)}) for number in range(6)]
        codes = list(pool.map(lambda change: client.request("PUT", f"{path}/a", change).code, changes))
        assert sorted(codes) == [200] + [409] * 5


@pytest.mark.parametrize("kind", KINDS)
def test_merge_patch(client, namespace, kind):
    """A merge patch sets and removes fields. With a resourceVersion it applies to that version only."""
    (first,) = create_objects(client, namespace, kind, "a", labels={"a": "1", "b": "2"})
    changed = client.patch(kind, namespace, "a", {"metadata": {"labels": {"a": None, "c": "3"}}})
    assert changed["metadata"]["labels"] == {"b": "2", "c": "3"}
    path = path_of(kind, namespace, "a")
    late = {"metadata": {"resourceVersion": resource_version_of(first), "labels": {"d": "4"}}}
    assert error_of(client.request("PATCH", path, late)) == conflict(kind)
    late["metadata"]["resourceVersion"] = resource_version_of(changed)
    assert client.request("PATCH", path, late).body["metadata"]["labels"] == {"b": "2", "c": "3", "d": "4"}


@pytest.mark.parametrize("kind", KINDS)
def test_json_patch(client, namespace, kind):
    """A JSON patch is applied completely, or not at all if an operation or a test fails."""
    create_objects(client, namespace, kind, "a", labels={"a": "1", "b": "2"})
    path = path_of(kind, namespace, "a")
    test = {"op": "test", "path": "/metadata/labels/a"}
    steps = [{**test, "value": "1"}, {"op": "replace", "path": "/metadata/labels/b", "value": "3"}]
    response = client.request(
        "PATCH", path, [*steps, {"op": "remove", "path": "/metadata/labels/a"}], content_type=JSON
    )
    assert response.body["metadata"]["labels"] == {"b": "3"}
    for failing in ({**test, "value": "1"}, {"op": "remove", "path": "/metadata/labels/none"}):
        step = {"op": "add", "path": "/metadata/labels/c", "value": "4"}
        response = client.request("PATCH", path, [step, failing], content_type=JSON)
        assert error_of(response) == (422, "Invalid", REQUEST_ERROR)
    assert client.get(kind, namespace, "a")["metadata"]["labels"] == {"b": "3"}


@pytest.mark.parametrize("kind", KINDS)
def test_identity_cannot_be_patched(client, namespace, kind):
    """A patch that changes name, namespace or UID is rejected."""
    create_objects(client, namespace, kind, "a")
    name_differs = "the name of the object (b) does not match the name on the URL (a)"
    other = "the namespace of the provided object does not match the namespace sent on the request"
    rows = [
        ("b", b"{}", "merge-", 404, f'{PLURAL[kind]} "b" not found'),
        ("a", b'{"metadata":{"name":"b"}}', "merge-", 400, name_differs),
        ("a", b'{"metadata":{"namespace":"b"}}', "merge-", 400, other),
    ]
    responses = []
    for name, body, media, _, _ in rows:
        response = client.send_raw("PATCH", path_of(kind, namespace, name), body, f"application/{media}patch+json")
        responses.append((name, body, media, response.code, response.message))
    assert responses == rows
    response = client.request("PATCH", path_of(kind, namespace, "a"), {"metadata": {"uid": "b"}})
    assert (response.code, response.reason) == (422, "Invalid")
    assert response.message.endswith('"a" is invalid: metadata.uid: Invalid value: "b": field is immutable')


@pytest.mark.parametrize("kind", KINDS)
def test_patch_unreadable(client, namespace, kind):
    """A patch that is not JSON, or that does not match its media type, gets 400."""
    create_objects(client, namespace, kind, "a")
    for body, media in ((b"{bad", "merge-"), (b"", "merge-"), (b"[]", "merge-"), (b'{"a":1}', "json-")):
        response = client.send_raw("PATCH", path_of(kind, namespace, "a"), body, f"application/{media}patch+json")
        assert (response.code, response.reason) == (400, "BadRequest"), body


def test_kinds_of_patches(client, namespace):
    """A custom resource accepts no strategic merge patch. No kind accepts application/json as a patch."""
    for kind in KINDS:
        create_objects(client, namespace, kind, "a")
    secret, runtime = (path_of(kind, namespace, "a") for kind in KINDS)
    change = {"metadata": {"labels": {"a": "b"}}}
    assert client.request("PATCH", secret, change, content_type=STRATEGIC).code == 200
    unknown = (415, "UnsupportedMediaType", FORMAT)
    assert error_of(client.request("PATCH", runtime, change, content_type=STRATEGIC)) == unknown
    assert error_of(client.request("PATCH", runtime, change, content_type="application/json")) == unknown
    response = client.request("PATCH", secret, change, content_type="application/json")
    assert error_of(response) == (415, "UnsupportedMediaType", "415: Unsupported Media Type")


@pytest.mark.parametrize("kind", KINDS)
def test_no_change(client, namespace, kind):
    """A write without changes creates no new resourceVersion."""
    (first,) = create_objects(client, namespace, kind, "a", labels={"a": "b"})
    assert resource_version_of(
        client.patch(kind, namespace, "a", {"metadata": {"labels": {"a": "b"}}})
    ) == resource_version_of(first)
    response = client.request(
        "PUT", path_of(kind, namespace, "a"), with_meta(first, resourceVersion=resource_version_of(first))
    )
    assert resource_version_of(response.body) == resource_version_of(first)


def test_generation(client, namespace):
    """metadata.generation counts changes of the spec, not of labels or the status."""
    (first,) = create_objects(client, namespace, "TrainingRuntime", "a")
    labelled = client.patch("TrainingRuntime", namespace, "a", {"metadata": {"labels": {"a": "b"}, "generation": 9}})
    assert (first["metadata"]["generation"], labelled["metadata"]["generation"]) == (1, 1)
    changed = client.patch("TrainingRuntime", namespace, "a", {"spec": {"mlPolicy": {"numNodes": 2}}})
    assert changed["metadata"]["generation"] == 2


ROW = {"name": "x", "active": 0, "failed": 0, "ready": 0, "succeeded": 0, "suspended": 0}


def test_status_subresource(client, namespace):
    """The status is changed only through its subresource, which changes nothing else."""
    # No controller writes the status of a job with this managedBy, nor of a suspended one twice.
    kueue = "kueue.x-k8s.io/multikueue"
    job = client.create({**shell("true", suspend=True, managedBy=kueue), "status": {"jobsStatus": [ROW]}}, namespace)
    assert not job.get("status")
    change = {"spec": {"suspend": False}, "metadata": {"labels": {"a": "b"}}, "status": {"jobsStatus": [ROW]}}
    response = client.request("PATCH", path_of("TrainJob", namespace, "job", "status"), change)
    assert response.code == 200
    assert "x" in [row["name"] for row in response.body["status"]["jobsStatus"]]
    assert response.body["spec"]["suspend"] is True
    assert (response.body["metadata"].get("labels"), response.body["metadata"]["generation"]) == (None, 1)
    plain = client.patch("TrainJob", namespace, "job", {"metadata": {"labels": {"c": "d"}}, "status": None})
    assert plain["status"] and plain["metadata"]["labels"] == {"c": "d"}
    own = client.request("GET", path_of("TrainJob", namespace, "job", "status"))
    assert (own.code, own.body["kind"], own.body["spec"]["suspend"]) == (200, "TrainJob", True)


def test_status_validation(client, namespace):
    """A status that violates the schema gets 422."""
    client.create(shell("true", suspend=True), namespace)
    path = path_of("TrainJob", namespace, "job", "status")
    response = client.request("PATCH", path, {"status": {"jobsStatus": [{"name": "x"}]}})
    assert (response.code, response.reason) == (422, "Invalid")
    for counter in ("active", "failed", "ready", "succeeded", "suspended"):
        assert f"status.jobsStatus[0].{counter}: Required value" in response.message
