"""Discovery: API groups, kinds, and the fields of kinds as OpenAPI v3."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest

from tests.support.polling import wait_until

GROUP = "trainer.kubeflow.org"
DOCUMENT = f"/openapi/v3/apis/{GROUP}/v1alpha1"
COMMON = {"runtimeRef", "initializer", "trainer", "suspend", "managedBy"}
VERBS = {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}


def schema_of(client, kind):
    """Return a kind's schema in the Trainer's OpenAPI document."""
    identity = {"group": GROUP, "kind": kind, "version": "v1alpha1"}
    schemas = client.request("GET", DOCUMENT).body["components"]["schemas"].values()
    (found,) = (one for one in schemas if one.get("x-kubernetes-group-version-kind") == [identity])
    return found


def test_openapi_index(client):
    """The OpenAPI index links the document of each group and version, with its hash in the URL."""
    paths = client.request("GET", "/openapi/v3").body["paths"]
    assert {"api/v1", "apis/batch/v1", "apis/jobset.x-k8s.io/v1alpha2", f"apis/{GROUP}/v1alpha1"} <= set(paths)
    address = urlsplit(paths[f"apis/{GROUP}/v1alpha1"]["serverRelativeURL"])
    assert (address.path, address.query.split("=")[0]) == (DOCUMENT, "hash")
    found = client.request("GET", f"{address.path}?{address.query}").body
    assert found["openapi"].startswith("3.") and found["components"]["schemas"]
    response = client.request("GET", "/openapi/v3/apis/example.org/v1")
    assert response.code == 404


def test_openapi_fields_of_a_trainjob(client, target):
    """The OpenAPI document names the fields of a TrainJob's spec, which identify the Trainer version."""
    own = {
        (2, 1): {"podTemplateOverrides", "labels", "annotations"},
        (2, 2): {"runtimePatches", "activeDeadlineSeconds"},
        (2, 3): {"runtimePatches", "activeDeadlineSeconds"},
    }
    assert set(schema_of(client, "TrainJob")["properties"]["spec"]["properties"]) == COMMON | own[target.trainer]


def test_openapi_rules_of_a_trainjob(client, target):
    """The OpenAPI document has the schema's types, defaults, limits and CEL rules."""
    spec = schema_of(client, "TrainJob")["properties"]["spec"]["properties"]
    reference = spec["runtimeRef"]
    assert {name: part["default"] for name, part in reference["properties"].items() if "default" in part} == {
        "apiGroup": GROUP,
        "kind": "ClusterTrainingRuntime",
    }
    assert reference["required"] == ["name"]
    assert (spec["suspend"]["type"], spec["suspend"]["default"]) == ("boolean", False)
    assert spec["trainer"]["properties"]["numNodes"]["format"] == "int32"
    rules = [rule["rule"] for rule in reference.get("x-kubernetes-validations", [])]
    assert ("self == oldSelf" in rules) == (target.trainer >= (2, 1))


@pytest.mark.since("2.3")
def test_descriptions_of_a_trainjob(client):
    """Fields of a TrainJob have descriptions; the laptop cluster has none for objects within Kubernetes' types."""
    schema = schema_of(client, "TrainJob")
    assert schema["description"]
    fields = dict(iterate_fields(schema["properties"]["spec"], "spec"))
    kubernetes_object = re.compile(r"\.(env|template\.spec\.template\.spec)\.")
    metadata = re.compile(r"\.metadata\.\w+$")  # without descriptions in the Trainer's definition, too
    missing = {path for path, field in fields.items() if not field.get("description") and not metadata.search(path)}
    assert {
        path for path in missing if not (kubernetes_object.search(path) and fields[path].get("type") == "object")
    } == set()


def iterate_fields(schema, path):
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field
        if name not in ("affinity", "volumes"):
            yield from iterate_fields(field.get("items", field), f"{path}.{name}")


def test_openapi_paths(client):
    """The OpenAPI document lists the paths of every kind, and the parameter fieldValidation of writes."""
    root = f"/apis/{GROUP}/v1alpha1"
    paths = client.request("GET", DOCUMENT).body["paths"]
    jobs = f"{root}/namespaces/{{namespace}}/trainjobs"
    assert {f"{root}/trainjobs", jobs, f"{jobs}/{{name}}", f"{jobs}/{{name}}/status"} <= set(paths)
    assert "fieldValidation" in {one["name"] for one in paths[jobs]["post"]["parameters"]}


def test_discovery(client):
    """Discovery lists the groups and kinds with their verbs and subresources."""
    groups = {
        group["name"]: group["preferredVersion"]["version"] for group in client.request("GET", "/apis").body["groups"]
    }
    expected = {GROUP: "v1alpha1", "jobset.x-k8s.io": "v1alpha2", "batch": "v1", "rbac.authorization.k8s.io": "v1"}
    assert expected.items() <= groups.items()
    assert client.request("GET", "/api").body["versions"] == ["v1"]
    listed = {one["name"]: one for one in client.request("GET", f"/apis/{GROUP}/v1alpha1").body["resources"]}
    kinds = {name: (one["kind"], one["namespaced"]) for name, one in listed.items() if "/" not in name}
    assert kinds == {
        "trainjobs": ("TrainJob", True),
        "trainingruntimes": ("TrainingRuntime", True),
        "clustertrainingruntimes": ("ClusterTrainingRuntime", False),
    }
    assert {*listed["trainjobs"]["verbs"]} == VERBS
    assert {*listed["trainjobs/status"]["verbs"]} == {"get", "patch", "update"}
    core = {one["name"]: one for one in client.request("GET", "/api/v1").body["resources"]}
    assert core["pods"]["shortNames"] == ["po"] and core["pods/log"]["verbs"] == ["get"]
    assert core["serviceaccounts/token"]["kind"] == "TokenRequest"


def test_version(client):
    """/version names the Kubernetes version, and the health paths respond with ok."""
    found = client.request("GET", "/version").body
    assert found["gitVersion"].startswith(f"v{found['major']}.{found['minor'].rstrip('+')}.")
    for path in ("/healthz", "/livez", "/readyz"):  # these fail while etcd is slow to respond
        wait_until(lambda path=path: client.request("GET", path).body == "ok")
