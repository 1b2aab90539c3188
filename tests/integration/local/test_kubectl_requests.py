"""Requests that kubectl and other Go clients send, without these programs; tests/e2e/local has the real kubectl."""

from __future__ import annotations

import base64
import http.client
import json

import pytest

from tests.integration.local.served_registry import ADMIN_TOKEN, TRAINJOBS, pod, serve_registry, trainjob
from trainjob_local.apiserver.strategic_merge import strategic_merge_patch

TABLE = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)
PODS, SECRETS = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/secrets"
APPLY, STRATEGIC = "application/apply-patch+yaml", "application/strategic-merge-patch+json"
PROTOBUF = "application/vnd.kubernetes.protobuf"


@pytest.fixture(scope="module")
def served():
    with serve_registry() as opened:
        yield opened


def send(served, path, method="GET", body=None, **headers):
    """Send a request with headers, and return status and body of the response."""
    connection = http.client.HTTPConnection("127.0.0.1", served.server.port, timeout=60)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, {"Authorization": f"Bearer {ADMIN_TOKEN}", **named})
    response = connection.getresponse()
    found = response.status, json.loads(response.read())
    connection.close()
    return found


def test_lists_and_objects_can_be_tables(served, unique):
    served.request("POST", TRAINJOBS, trainjob(unique))
    conditions = [{"type": "Suspended", "status": "True", "reason": "r", "message": "m"}]
    served.registry.patch(
        "trainjobs",
        unique,
        {"status": {"conditions": [{**one, "lastTransitionTime": "2026-01-01T00:00:00Z"} for one in conditions]}},
        "default",
        subresource="status",
    )
    code, table = send(served, TRAINJOBS, Accept=TABLE)
    assert (code, table["kind"], table["apiVersion"]) == (200, "Table", "meta.k8s.io/v1")
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "State", "Age"]
    [row] = [row for row in table["rows"] if row["cells"][0] == unique]
    assert row["cells"][1] == "Suspended"
    assert (row["object"]["kind"], row["object"]["metadata"]["name"]) == ("PartialObjectMetadata", unique)
    _, single = send(served, f"{TRAINJOBS}/{unique}?includeObject=Object", Accept=TABLE)
    assert single["rows"][0]["object"]["spec"]["runtimeRef"]["name"] == "torch-distributed"
    assert "object" not in send(served, f"{TRAINJOBS}/{unique}?includeObject=None", Accept=TABLE)[1]["rows"][0]
    assert send(served, f"{TRAINJOBS}?includeObject=Nope", Accept=TABLE)[0] == 400
    assert send(served, TRAINJOBS, Accept="application/json")[1]["kind"] == "TrainJobList"


def test_watches_can_have_tables(served, unique):
    path = f"{TRAINJOBS}?watch=true&fieldSelector=metadata.name%3D{unique}&timeoutSeconds=1"
    served.request("POST", TRAINJOBS, trainjob(unique))
    code, event = send(served, path, Accept=TABLE)
    assert (code, event["type"], event["object"]["kind"]) == (200, "ADDED", "Table")
    assert event["object"]["rows"][0]["cells"][0] == unique


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        ({"phase": "Pending"}, ("0/1", "Pending", "0")),
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]},
            ("0/1", "ImagePullBackOff", "0"),
        ),
        ({"initContainerStatuses": [{"state": {"running": {}}}]}, ("0/1", "Init:0/1", "0")),
        (
            {"initContainerStatuses": [{"state": {"terminated": {"exitCode": 3}}, "restartCount": 2}]},
            ("0/1", "Init:ExitCode:3", "2"),
        ),
        (
            {"containerStatuses": [{"state": {"running": {}}, "ready": True}], "phase": "Running"},
            ("1/1", "Running", "0"),
        ),
        ({"containerStatuses": [{"state": {"terminated": {"signal": 9, "exitCode": 137}}}]}, ("0/1", "Signal:9", "0")),
        ({"reason": "Evicted", "phase": "Failed"}, ("0/1", "Evicted", "0")),
    ],
)
def test_pods_are_printed_as_by_a_real_server(served, unique, status, shown):
    made = pod(unique)
    made["spec"]["initContainers"] = [{"name": "i", "image": "x"}]
    served.request("POST", PODS, made)
    served.registry.patch("pods", unique, {"status": status}, "default", subresource="status")
    cells = send(served, f"{PODS}/{unique}", Accept=TABLE)[1]["rows"][0]["cells"]
    assert tuple(cells[1:4]) == shown


def varint(number):
    """Return a number in protobuf's variable length."""
    return bytes([number]) if number < 128 else bytes([number % 128 + 128]) + varint(number // 128)


def field(number, content):
    """Return a protobuf field with a number or bytes."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def envelope(kind, message, version=b"v1"):
    """Return an object as typed Go clients send it."""
    return b"k8s\x00" + field(1, field(1, version) + field(2, kind)) + field(2, message)


def test_bodies_can_be_protobuf(served, unique):
    metadata = field(1, unique.encode()) + field(2, b"") + field(11, field(1, b"a") + field(2, b"b")) + field(8, b"")
    body = envelope(b"Secret", field(1, metadata) + field(2, field(1, b"key") + field(2, b"\x00\xff")) + field(3, b""))
    code, made = send(served, SECRETS, "POST", body, Content_Type=PROTOBUF)
    assert (code, made["type"], made["metadata"]["labels"]) == (201, "Opaque", {"a": "b"})
    assert base64.b64decode(made["data"]["key"]) == b"\x00\xff"
    assert "generateName" not in made["metadata"]


def test_protobuf_keeps_pointers_to_zero_and_inlines_as_json_does(served, unique):
    container = field(1, b"c") + field(2, b"x")
    volume = field(1, b"v") + field(2, field(2, b""))  # emptyDir: {}
    spec = field(1, volume) + field(2, container) + field(4, 0) + field(21, 0)
    body = envelope(b"Pod", field(1, field(1, unique.encode())) + field(2, spec))
    code, made = send(served, PODS, "POST", body, Content_Type=PROTOBUF)
    assert (code, made["spec"]["terminationGracePeriodSeconds"]) == (201, 0)
    assert made["spec"]["automountServiceAccountToken"] is False
    assert made["spec"]["volumes"] == [{"name": "v", "emptyDir": {}}]


@pytest.mark.parametrize(
    "body", [b"", b"nope", b"k8s\x00", b"k8s\x00\xff", envelope(b"Nope", b""), envelope(b"Secret", b"\x0a\x7f")]
)
def test_damaged_protobuf_is_refused(served, body):
    assert send(served, SECRETS, "POST", body, Content_Type=PROTOBUF)[0] == 400


def test_strategic_merge_patches_merge_lists_by_key(served, unique):
    served.request("POST", PODS, pod(unique, finalizers=["example.org/a", "example.org/b"]))
    patch = {
        "metadata": {"$deleteFromPrimitiveList/finalizers": ["example.org/a"], "finalizers": ["example.org/c"]},
        "spec": {"containers": [{"name": "c", "image": "y"}]},
    }
    changed = served.request("PATCH", f"{PODS}/{unique}", patch, content_type=STRATEGIC).json
    assert changed["metadata"]["finalizers"] == ["example.org/b", "example.org/c"]
    assert changed["spec"]["containers"] == [{"name": "c", "image": "y"}]
    wrong = served.request("PATCH", f"{PODS}/{unique}", {"$patch": "nope"}, content_type=STRATEGIC)
    assert (wrong.code, wrong.message) == (400, "unknown patch type: nope")


@pytest.mark.parametrize(
    ("patch", "names"),
    [
        ({"containers": [{"name": "d"}]}, "abcd"),
        ({"containers": [{"name": "b", "$patch": "delete"}]}, "ac"),
        ({"containers": [{"$patch": "replace"}, {"name": "d"}]}, "d"),
        ({"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}]}, "cba"),
        ({"$patch": "replace", "containers": [{"name": "d"}]}, "d"),
        ({"$patch": "delete"}, ""),
        ({"$retainKeys": ["volumes"], "volumes": []}, ""),
        ({"containers": None}, ""),
    ],
    ids=str,
)
def test_directives_of_strategic_merge_patches(patch, names):
    spec = {"containers": [{"name": name} for name in "abc"]}
    changed = strategic_merge_patch({"spec": spec}, {"spec": patch}, "api/core/v1.Pod")["spec"]
    assert "".join(one["name"] for one in changed.get("containers", ())) == names


@pytest.mark.parametrize(
    "patch",
    [
        {"$retainKeys": 5},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": 5, "$setElementOrder/finalizers": 5}},
        {"spec": {"containers": ["x"]}},
        {"spec": {"$setElementOrder/containers": [1]}},
    ],
    ids=str,
)
def test_damaged_patches_are_refused(served, unique, patch):
    served.request("POST", PODS, pod(unique, finalizers=["example.org/a"]))
    assert served.request("PATCH", f"{PODS}/{unique}", patch, content_type=STRATEGIC).code == 400


def test_an_object_with_fields_of_wrong_types_is_listed(served, unique):
    served.request("POST", PODS, pod(unique))
    served.registry.patch("pods", unique, {"status": {"containerStatuses": [1]}}, "default", subresource="status")
    assert send(served, f"{PODS}/{unique}", Accept=TABLE)[1]["rows"][0]["cells"][0] == unique


def test_server_side_apply_creates_and_merges(served, unique):
    path = f"{TRAINJOBS}/{unique}?fieldManager=me"
    body = trainjob(unique, trainer={"env": [{"name": "a", "value": "1"}]}, suspend=True)
    assert served.request("PATCH", path, body, content_type=APPLY).code == 201
    again = {**body, "metadata": {"labels": {"a": "b"}}, "spec": {"runtimeRef": {"name": "torch-distributed"}}}
    response = served.request("PATCH", path, again, content_type=APPLY)
    assert (response.code, response.json["metadata"]["labels"], response.json["spec"]["suspend"]) == (
        200,
        {"a": "b"},
        True,
    )
    unnamed = served.request("PATCH", f"{TRAINJOBS}/{unique}", body, content_type=APPLY)
    assert (unnamed.code, "fieldManager: Required value" in unnamed.message) == (422, True)
    other = served.request("PATCH", path, {**body, "metadata": {"name": "other"}}, content_type=APPLY)
    assert (other.code, other.message) == (
        400,
        f"the name of the object (other) does not match the name on the URL ({unique})",
    )
    assert served.request("PATCH", path, pod(unique), content_type=APPLY).code == 400


def test_bodies_can_be_yaml(served, unique):
    text = f"metadata: {{name: {unique}, annotations: {{a: '1'}}}}\nstringData: {{b: 2026-01-01T00:00:00Z}}\n"
    made = served.request("POST", SECRETS, text, content_type="application/yaml")
    assert (made.code, base64.b64decode(made.json["data"]["b"])) == (201, b"2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    "text", ["a: [", "a: &x [1]\nb: *x\n", "a: !!binary aGk=", "a: .nan", "a: 1\n---\nb: 2\n", "\x00"]
)
def test_damaged_yaml_is_refused(served, text):
    refused = served.request("POST", SECRETS, text, content_type="application/yaml")
    assert (refused.code, refused.message.startswith("error decoding YAML: ")) == (400, True)


def test_reviews_of_the_own_rights(served):
    reviews = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    rules = served.request("POST", reviews, {"spec": {"namespace": "default"}}).json["status"]
    assert {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]} in rules["resourceRules"]
    found = served.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}).json["status"]["userInfo"]
    assert found == {"username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"]}


def test_an_administrator_may_act_as_somebody_else(served):
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    account = "system:serviceaccount:default:robot"
    _, found = send(served, path, "POST", "{}", Impersonate_User=account)
    groups = ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]
    assert found["status"]["userInfo"] == {"username": account, "groups": groups}
    code, refused = send(served, PODS, Impersonate_User=account)
    assert (code, f'User "{account}" cannot list resource "pods"' in refused["message"]) == (403, True)


def test_commands_in_pods_are_refused_with_the_reason(served, unique):
    served.request("POST", PODS, pod(unique))
    refused = served.request("POST", f"{PODS}/{unique}/exec?command=ls")
    assert (refused.code, "does not support exec of pods" in refused.message) == (501, True)


def test_openapi_has_the_fields_of_built_in_kinds(served):
    schemas = served.request("GET", "/openapi/v3/api/v1").json["components"]["schemas"]
    spec = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]
    assert spec["containers"]["x-kubernetes-patch-merge-key"] == "name"
    assert spec["containers"]["description"].startswith("List of containers belonging to the pod.")
    assert schemas["io.k8s.api.core.v1.Volume"]["properties"]["emptyDir"]["allOf"]
