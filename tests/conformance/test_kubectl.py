"""Requests of kubectl: tables, server-side apply, strategic merge patches, and reviews of the user's rights."""

from __future__ import annotations

import json

import pytest

from tests.conformance.idle_objects import KINDS, create_objects, error_of, idle_object
from tests.support.kubernetes_client import path_of
from tests.support.trainjobs import IMAGE, train_job

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
APPLY, STRATEGIC = "application/apply-patch+yaml", "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
REVIEWS = "/apis/authorization.k8s.io/v1"


def request_table(client, kind, namespace=None, name=""):
    """Return the columns of a table as (name, type, priority), and its cells without ages."""
    response = client.request("GET", path_of(kind, namespace, name), accept=TABLE)
    assert (response.code, response.body["kind"]) == (200, "Table")
    columns = response.body["columnDefinitions"]
    assert [one["name"] for one in columns if one["format"] == "name"] == ["Name"]
    shown = [n for n, one in enumerate(columns) if one["name"] not in ("Age", "Created At")]
    cells = [[row["cells"][n] for n in shown] for row in response.body["rows"]]
    return [(one["name"], one["type"], one["priority"]) for one in columns], cells


def strings(text):
    """Return columns of type string, of which those after `+` are shown by `-o wide` only."""
    shown, _, wide = text.partition("+")
    return [(name, "string", priority) for part, priority in ((shown, 0), (wide, 1)) for name in part.split()]


@pytest.fixture
def suspended(client, namespace):
    """Return the name of a suspended TrainJob with its JobSet and Job."""
    client.create(train_job("true", name="t", suspend=True), namespace)
    client.wait_for("TrainJob", namespace, "t", lambda found: (found.get("status") or {}).get("conditions"))
    client.wait_for("JobSet", namespace, "t", lambda found: (found.get("status") or {}).get("conditions"))
    suspension = {"type": "Suspended", "status": "True"}
    client.wait_for(
        "Job",
        namespace,
        "t-node-0",
        lambda found: any(suspension.items() <= one.items() for one in found["status"].get("conditions", ())),
    )
    return "t"


def test_tables_of_jobs(client, namespace, suspended):
    """TrainJobs, JobSets and Jobs have the columns of their definitions."""
    age = ("Age", "date", 0)
    assert request_table(client, "TrainJob", namespace) == ([*strings("Name State"), age], [[suspended, "Suspended"]])
    assert request_table(client, "JobSet", namespace) == (
        [*strings("Name TerminalState Restarts Completed Suspended"), age],
        [[suspended, None, "0", None, "true"]],
    )
    columns, [cells] = request_table(client, "Job", namespace)
    assert columns == strings("Name Status Completions Duration Age + Containers Images Selector")
    assert cells[:-1] == [f"{suspended}-node-0", "Suspended", "0/1", "", "node", IMAGE]


def test_tables_of_runtimes(client, namespace):
    """A kind without columns of its own has a name and an age."""
    create_objects(client, namespace, "TrainingRuntime", "a")
    columns = [("Name", "string", 0), ("Age", "date", 0)]
    assert request_table(client, "TrainingRuntime", namespace) == (columns, [["a"]])
    assert request_table(client, "ClusterTrainingRuntime")[0] == columns


def test_tables_of_built_in_kinds(client, namespace):
    """Built-in kinds have the columns that kubectl shows."""
    client.create({**idle_object("Secret", "a"), "stringData": {"b": "c"}}, namespace)
    columns = strings("Name Type Data Age")
    assert request_table(client, "Secret", namespace, "a") == (columns, [["a", "Opaque", 1]])
    gated = {"schedulingGates": [{"name": "example.org/x"}], "containers": [{"name": "c", "image": "busybox"}]}
    pod = client.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": gated}, namespace)
    assert [one["reason"] for one in pod["status"]["conditions"]] == ["SchedulingGated"]  # already in the response
    columns, cells = request_table(client, "Pod", namespace)
    wide = [(name, "string", 1) for name in ("IP", "Node", "Nominated Node", "Readiness Gates")]
    assert columns == [*strings("Name Ready Status Restarts Age"), *wide]
    assert cells == [["p", "0/1", "SchedulingGated", "0", *["<none>"] * 4]]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}, "rules": []}
    client.create(role, namespace)
    assert request_table(client, "Role", namespace) == ([("Name", "string", 0), ("Created At", "date", 0)], [["r"]])


def test_parts_of_objects_in_tables(client, namespace):
    """includeObject selects what a row contains of its object: nothing, the metadata, or everything."""
    create_objects(client, namespace, "Secret", "a")
    path = path_of("Secret", namespace, "a")

    def get_row(**query):
        [row] = client.request("GET", path, accept=TABLE, **query).body["rows"]
        return row.get("object")

    assert get_row()["kind"] == get_row(includeObject="Metadata")["kind"] == "PartialObjectMetadata"
    assert (get_row(includeObject="Object")["kind"], get_row(includeObject="None")) == ("Secret", None)
    text = "includeObject: Invalid value: \"Nope\": must be 'Metadata', 'Object', 'None', or empty"
    refused = client.request("GET", path, accept=TABLE, includeObject="Nope")
    assert error_of(refused) == (400, "BadRequest", f"Unable to convert to Table as requested: {text}")


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_configurations(client, namespace, kind):
    """Server-side apply needs a field manager, and a configuration with the kind and name of the URL."""
    right = idle_object(kind, "a")

    def apply(body, **query):
        response = client.send_raw("PATCH", path_of(kind, namespace, "a"), json.dumps(body).encode(), APPLY, **query)
        return response.code, response.message

    required = "fieldManager: Required value: is required for apply patch"
    assert apply(right) == (422, f'PatchOptions.meta.k8s.io "" is invalid: {required}')
    other, owned = ({**right, "metadata": meta} for meta in ({"name": "b"}, {"managedFields": [{"manager": "x"}]}))
    text = "the name of the object (b) does not match the name on the URL (a)"
    assert apply(other, fieldManager="me") == (400, text)
    assert apply(owned, fieldManager="me") == (400, "metadata.managedFields must be nil")
    wrong = {**right, "kind": "ConfigMap"}
    group, _, version = right["apiVersion"].rpartition("/")
    assert apply(wrong, fieldManager="me") == (400, f"invalid object type: {group}/{version}, Kind=ConfigMap")
    assert apply(None, fieldManager="me") == (400, "invalid object type: /, Kind=")


@pytest.mark.differs("laptop", "unknown fields of configurations are stored, except those of TrainJobs")
def test_unknown_fields_of_configurations(client, namespace):
    """Server-side apply rejects unknown fields of built-in kinds."""
    body = json.dumps({**idle_object("Secret", "a"), "bogus": 1}).encode()
    response = client.send_raw("PATCH", path_of("Secret", namespace, "a"), body, APPLY, fieldManager="me")
    assert (response.code, "field not declared in schema" in response.message) == (500, True)


def test_directives_of_patches(client, namespace):
    """Directives of a strategic merge patch delete items of a list, and replace a map."""
    create_objects(client, namespace, "Secret", "a", labels={"a": "b"}, finalizers=["example.org/a", "example.org/b"])

    def patch(**metadata):
        path = path_of("Secret", namespace, "a")
        return client.request("PATCH", path, {"metadata": metadata}, content_type=STRATEGIC).body["metadata"]

    assert patch(**{"$deleteFromPrimitiveList/finalizers": ["example.org/a"]})["finalizers"] == ["example.org/b"]
    assert patch(labels={"$patch": "replace", "c": "d"})["labels"] == {"c": "d"}
    assert "finalizers" not in patch(**{"$deleteFromPrimitiveList/finalizers": ["example.org/b"]})


@pytest.mark.parametrize("key", ["containers", "initContainers"])
def test_added_containers(client, namespace, key):
    """A patch cannot add a container to a pod, nor remove one."""
    spec = {"schedulingGates": [{"name": "example.org/x"}], "containers": [{"name": "c", "image": "busybox"}]}
    client.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}, namespace)
    change = {"spec": {key: [{"name": "another", "image": "busybox"}]}}
    refused = client.request("PATCH", path_of("Pod", namespace, "p"), change, content_type=STRATEGIC)
    text = f'Pod "p" is invalid: spec.{key}: Forbidden: pod updates may not add or remove containers'
    assert error_of(refused) == (422, "Invalid", text)


@pytest.mark.parametrize("kind", KINDS)
def test_empty_metadata(client, namespace, kind):
    """Empty lists and maps of the metadata are not stored."""
    [made] = create_objects(client, namespace, kind, "a", labels={}, finalizers=[], ownerReferences=[])
    assert made["metadata"].keys().isdisjoint({"labels", "finalizers", "ownerReferences"})
    path = path_of(kind, namespace, "a")
    client.request("PATCH", path, {"metadata": {"annotations": {"a": "b"}}}, content_type=MERGE)
    changed = client.request("PATCH", path, {"metadata": {"annotations": {"a": None}}}, content_type=MERGE)
    assert "annotations" not in changed.body["metadata"]


def test_incomplete_reviews(client):
    """A review of rights needs a namespace or the attributes of a request."""
    rules = client.request("POST", f"{REVIEWS}/selfsubjectrulesreviews", {"spec": {}})
    assert error_of(rules) == (400, "BadRequest", "no namespace on request")
    text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
    access = client.request("POST", f"{REVIEWS}/selfsubjectaccessreviews", {"spec": {}})
    assert error_of(access) == (
        422,
        "Invalid",
        f'.authorization.k8s.io "" is invalid: spec.resourceAttributes: Invalid value: null: {text}',
    )
