"""Create, read, replace and patch, through the unmodified kubernetes client."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from kubernetes import client

from tests.integration.local.served_registry import (
    MERGE_PATCH,
    TRAINJOBS,
    ServedRegistry,
    pod,
    serve_registry,
    trainjob,
)

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def served() -> Iterator[ServedRegistry]:
    with serve_registry() as opened:
        yield opened


@pytest.fixture(scope="module")
def core(served: ServedRegistry) -> client.CoreV1Api:
    return client.CoreV1Api(served.create_client())


def test_every_resource_can_be_created_and_listed(served: ServedRegistry) -> None:
    from trainjob_local.apiserver import RESOURCES

    extra = {
        "pods": {"spec": pod("x")["spec"]},
        "persistentvolumeclaims": {
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        },
        "jobs": {"spec": {"template": {"spec": {**pod("x")["spec"], "restartPolicy": "Never"}}}},
        "trainjobs": {"spec": trainjob("x")["spec"]},
        "rolebindings": {"roleRef": {"kind": "Role", "name": "x"}},
        "clusterrolebindings": {"roleRef": {"kind": "ClusterRole", "name": "x"}},
    }
    for resource in RESOURCES:
        root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
        path = f"{root}/namespaces/default/{resource.plural}" if resource.namespaced else f"{root}/{resource.plural}"
        name = "every-" + (resource.group.partition(".")[0] or "core")
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}
        created = served.request("POST", path, {**body, **extra.get(resource.plural, {})})
        assert created.code == 201, created.text
        assert (created.json["kind"], created.json["apiVersion"]) == (resource.kind, resource.api_version)
        listed = served.request("GET", path).json
        assert listed["kind"] == f"{resource.kind}List"
        assert name in {item["metadata"]["name"] for item in listed["items"]}
        assert served.request("GET", f"{path}/{name}").json["metadata"]["uid"] == created.json["metadata"]["uid"]


def test_pods_are_bound_once_and_keep_their_spec(core: client.CoreV1Api, served: ServedRegistry) -> None:
    created = core.create_namespaced_pod("default", pod("bound"))
    assert created.status.phase == "Pending"
    path = "/api/v1/namespaces/default/pods/bound"
    binding = {"metadata": {"name": "bound"}, "target": {"kind": "Node", "name": "n1"}}
    assert served.request("POST", f"{path}/binding", binding).code == 201
    assert core.read_namespaced_pod("bound", "default").spec.node_name == "n1"
    again = served.request("POST", f"{path}/binding", binding)
    assert again.code == 409
    assert again.message.endswith('pods/binding "bound": pod bound is already assigned to node "n1"')
    assert served.request("POST", f"{path}/binding", {"target": {"name": "n1"}}).code == 400
    moved = served.request("PATCH", path, {"spec": {"nodeName": "n2"}}, content_type=MERGE_PATCH)
    assert moved.code == 422
    assert moved.message.startswith('Pod "bound" is invalid: spec: Forbidden: pod updates may not change fields other')
    running = core.patch_namespaced_pod_status("bound", "default", {"status": {"phase": "Running"}})
    assert (running.status.phase, running.spec.node_name) == ("Running", "n1")
    assert running.status.conditions[0].type == "PodScheduled"


def test_secrets_are_encoded(core: client.CoreV1Api) -> None:
    created = core.create_namespaced_secret("default", client.V1Secret(metadata={"name": "s"}, string_data={"a": "b"}))
    assert (created.data, created.type, created.string_data) == ({"a": "Yg=="}, "Opaque", None)


def test_events_have_two_shapes(served: ServedRegistry) -> None:
    api = client.CoreV1Api(served.create_client())
    event = {
        "metadata": {"name": "e1"},
        "involvedObject": {"kind": "Pod", "name": "p"},
        "reason": "Started",
        "message": "it runs",
        "source": {"component": "kubelet"},
        "type": "Normal",
    }
    api.create_namespaced_event("default", event)
    new = served.request("GET", "/apis/events.k8s.io/v1/namespaces/default/events/e1").json
    assert (new["note"], new["regarding"]["name"]) == ("it runs", "p")
    assert new["deprecatedSource"] == {"component": "kubelet"}
    found = served.request(
        "GET", "/apis/events.k8s.io/v1/namespaces/default/events?fieldSelector=regarding.name%3Dp"
    ).json
    assert [item["metadata"]["name"] for item in found["items"]] == ["e1"]
    assert "involvedObject" not in found["items"][0]

    sent = {
        "metadata": {"name": "e2"},
        "regarding": {"kind": "Pod", "name": "q"},
        "note": "from new",
        "type": "Warning",
    }
    assert served.request("POST", "/apis/events.k8s.io/v1/namespaces/default/events", sent).json["note"] == "from new"
    listed = api.list_namespaced_event("default", field_selector="involvedObject.name=q,type=Warning").items
    assert [(item.message, item.involved_object.kind) for item in listed] == [("from new", "Pod")]
    patch = served.request(
        "PATCH", "/apis/events.k8s.io/v1/namespaces/default/events/e2", {"note": "again"}, content_type=MERGE_PATCH
    )
    assert patch.json["note"] == "again"
    assert api.read_namespaced_event("e2", "default").message == "again"


@pytest.mark.parametrize(
    "spec",
    [
        *({"volumes": volumes} for volumes in (-1, ["v"], {"v": 1}, "v", [{"name": "v", "secret": "x"}])),
        *({"volumes": [{"name": "v", "projected": {"sources": sources}}]} for sources in ("x", ["x"])),
        {"affinity": {"nodeAffinity": "x"}},
        {"nodeSelector": {"a": 1}},
        {"terminationGracePeriodSeconds": "1"},
        *(
            {"containers": [{"name": "c", "image": "x", **more}]}
            for more in (
                {"command": "x"},
                {"env": [{"name": "A", "value": 1}]},
                {"resources": {"limits": {"cpu": "many"}}},
                {"volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": 1}]},
            )
        ),
    ],
    ids=str,
)
def test_a_pod_with_values_of_wrong_types_is_rejected(served: ServedRegistry, spec: dict[str, object]) -> None:
    """A pod with wrong types is rejected, because the scheduler and the kubelet rely on these types."""
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}], **spec}}
    assert served.request("POST", "/api/v1/namespaces/default/pods", pod).code in (400, 422)


def test_a_finalizer_that_is_null_is_rejected(served: ServedRegistry) -> None:
    body = trainjob("null")
    body["metadata"]["finalizers"] = [None]
    assert served.request("POST", TRAINJOBS, body).code == 422


def test_a_warning_with_control_characters_is_dropped(served: ServedRegistry) -> None:
    body = trainjob("odd")
    body["spec"]["trainer"] = {"line\rend": 1, "plain": 1}
    response = served.request("POST", f"{TRAINJOBS}?fieldValidation=Warn", body)
    assert response.code == 201
    assert response.headers["warning"] == '299 - "unknown field \\"spec.trainer.plain\\""'


def test_a_new_namespace_has_its_default_service_account(core: client.CoreV1Api) -> None:
    created = core.create_namespace({"metadata": {"name": "fresh"}})
    assert created.status.phase == "Active"
    assert created.metadata.labels == {"kubernetes.io/metadata.name": "fresh"}
    assert [account.metadata.name for account in core.list_namespaced_service_account("fresh").items] == ["default"]


@pytest.mark.parametrize("odd", [1, "x", [], [1], [{}], {"a": 1}, True, 1.5, None])
def test_values_of_wrong_types_cause_no_server_error(served: ServedRegistry, odd: object) -> None:
    namespace = "/api/v1/namespaces/default"
    requests: list[tuple[str, str, object]] = [("POST", path, odd) for path in (TRAINJOBS, f"{namespace}/pods")]
    requests += [("POST", "/api/v1/namespaces", {"metadata": {"generateName": "z-"}, "spec": odd})]
    requests += [
        ("POST", f"{namespace}/pods", {"metadata": {"generateName": "z-", field: odd}, "spec": pod("x")["spec"]})
        for field in ("name", "labels", "annotations", "finalizers", "ownerReferences", "uid", "namespace")
    ]
    requests += [
        ("POST", f"{namespace}/pods", {"metadata": {"generateName": "z-"}, "spec": {field: odd}})
        for field in ("containers", "initContainers", "nodeName")
    ]
    requests += [("DELETE", f"{CONFIGMAPS}/none", {field: odd}) for field in ("preconditions", "gracePeriodSeconds")]
    requests += [
        ("POST", f"{namespace}/serviceaccounts/default/token", {"spec": {field: odd}})
        for field in ("audiences", "boundObjectRef", "expirationSeconds")
    ]
    review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    requests += [("POST", review, {"spec": odd}), ("POST", review, {"spec": {"resourceAttributes": {"resource": odd}}})]
    for method, path, body in requests:
        response = served.request(method, path, json.dumps(body))
        assert response.code < 500, (method, path, body, response.text)
