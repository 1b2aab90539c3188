"""Create, read, replace and patch, through the unmodified kubernetes client."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from apiserver_door import MERGE, TRAINJOBS, Door, pod, serving, trainjob
from kubernetes import client
from kubernetes.client.exceptions import ApiException

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    with serving() as opened:
        yield opened


@pytest.fixture(scope="module")
def core(door: Door) -> client.CoreV1Api:
    return client.CoreV1Api(door.client())


@pytest.fixture(scope="module")
def custom(door: Door) -> client.CustomObjectsApi:
    return client.CustomObjectsApi(door.client())


WHERE = ("trainer.kubeflow.org", "v1alpha1", "default", "trainjobs")


def test_a_new_object_gets_an_identity(core: client.CoreV1Api) -> None:
    sent = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="new", uid="mine", generation=7), data={"a": "b"})
    created = core.create_namespaced_config_map("default", sent)
    assert created.metadata.namespace == "default"
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", created.metadata.uid)
    assert created.metadata.creation_timestamp.tzinfo is not None
    assert int(created.metadata.resource_version) > 0
    assert created.metadata.generation is None  # ConfigMaps have none
    assert core.read_namespaced_config_map("new", "default").to_dict() == created.to_dict()


def test_generate_name(core: client.CoreV1Api) -> None:
    sent = client.V1ConfigMap(metadata=client.V1ObjectMeta(generate_name="x-" * 40))
    names = {core.create_namespaced_config_map("default", sent).metadata.name for _ in range(5)}
    assert len(names) == 5
    assert all(re.fullmatch(r"(x-){29}[bcdfghjklmnpqrstvwxz2456789]{5}", name) for name in names)


def test_every_resource_can_be_created_and_listed(door: Door) -> None:
    from trainjob.local.apiserver import RESOURCES

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
        created = door.ask("POST", path, {**body, **extra.get(resource.plural, {})})
        assert created.code == 201, created.text
        assert (created.json["kind"], created.json["apiVersion"]) == (resource.kind, resource.api_version)
        listed = door.ask("GET", path).json
        assert listed["kind"] == f"{resource.kind}List"
        assert name in {item["metadata"]["name"] for item in listed["items"]}
        assert door.ask("GET", f"{path}/{name}").json["metadata"]["uid"] == created.json["metadata"]["uid"]


@pytest.mark.parametrize(
    ("path", "body", "code", "text"),
    [
        (TRAINJOBS.replace("default", "nope"), trainjob("x"), 404, 'namespaces "nope" not found'),
        (TRAINJOBS, {"spec": {}}, 400, "the object provided is unrecognized (must be of type TrainJob): Object 'Kind'"),
        (
            TRAINJOBS,
            "{bad",
            400,
            "the object provided is unrecognized (must be of type TrainJob): couldn't get version",
        ),
        (
            TRAINJOBS,
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}},
            400,
            "the API version in the data (v1) does not match the expected API version (trainer.kubeflow.org/v1alpha1)",
        ),
        (
            TRAINJOBS,
            {**trainjob("x"), "kind": "TrainingRuntime"},
            422,
            'TrainingRuntime.trainer.kubeflow.org "x" is invalid: kind: Invalid value: "TrainingRuntime": must be',
        ),
        (
            TRAINJOBS,
            {**trainjob("x"), "metadata": {"name": "x", "namespace": "other"}},
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            TRAINJOBS,
            {**trainjob("x"), "metadata": {"name": "x", "resourceVersion": "3"}},
            500,
            "resourceVersion should not be set on objects to be created",
        ),
        (
            "/api/v1/namespaces/default/pods",
            {"metadata": {"name": "Bad_Name"}, "spec": {}},
            422,
            'Pod "Bad_Name" is invalid: [metadata.name: Invalid value: "Bad_Name": a lowercase RFC 1123 subdomain must',
        ),
        (
            "/api/v1/namespaces/default/pods",
            {"metadata": {"name": "x", "labels": {"a": 1}}, "spec": {}},
            400,
            'Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal number into Go struct field',
        ),
        (
            "/api/v1/namespaces/default/persistentvolumeclaims",
            {"metadata": {"name": "x"}, "spec": {}},
            422,
            (
                'PersistentVolumeClaim "x" is invalid: [spec.accessModes: Required value: at least 1 access mode is '
                "required, spec.resources[storage]: Required value]"
            ),
        ),
        (
            "/apis/batch/v1/namespaces/default/jobs",
            {"metadata": {"name": "x"}, "spec": {}},
            422,
            (
                'Job.batch "x" is invalid: [spec.template.spec.containers: Required value, spec.template.spec.'
                'restartPolicy: Required value: valid values: "OnFailure", "Never"]'
            ),
        ),
        (
            "/api/v1/namespaces/default/configmaps?dryRun=x",
            {"metadata": {"name": "x"}},
            422,
            "CreateOptions.meta.k8s.io",
        ),
        ("/api/v1/namespaces/default/nope", {}, 404, "the server could not find the requested resource"),
        ("/api/v1/configmaps", {"metadata": {"name": "x"}}, 405, "the server does not allow this method"),
    ],
)
def test_what_is_refused(door: Door, path: str, body: object, code: int, text: str) -> None:
    answer = door.ask("POST", path, body)
    assert answer.code == code, answer.text
    assert answer.message.startswith(text)
    assert answer.json["kind"] == "Status"
    assert answer.json["code"] == code


def test_a_body_that_is_too_big(door: Door) -> None:
    answer = door.ask("POST", CONFIGMAPS, {"metadata": {"name": "x"}, "data": {"a": "b" * (3 << 20)}})
    assert (answer.code, answer.json["reason"]) == (413, "RequestEntityTooLarge")


def test_a_name_is_taken_once(custom: client.CustomObjectsApi) -> None:
    custom.create_namespaced_custom_object(*WHERE, trainjob("taken"))
    with pytest.raises(ApiException) as raised:
        custom.create_namespaced_custom_object(*WHERE, trainjob("taken"))
    assert raised.value.status == 409
    assert '"reason":"AlreadyExists"' in raised.value.body
    assert r"trainjobs.trainer.kubeflow.org \"taken\" already exists" in raised.value.body


def test_the_first_of_many_wins_the_name(door: Door) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(lambda _: door.ask("POST", CONFIGMAPS, {"metadata": {"name": "race"}}).code, range(16))
    assert sorted(answers) == [201] + [409] * 15


def test_dry_run_checks_and_stores_nothing(core: client.CoreV1Api, door: Door) -> None:
    created = core.create_namespaced_config_map("default", {"metadata": {"name": "dry"}}, dry_run="All")
    assert created.metadata.uid
    assert created.metadata.resource_version is None
    assert door.ask("GET", f"{CONFIGMAPS}/dry").code == 404
    kept = core.create_namespaced_config_map("default", {"metadata": {"name": "wet"}})
    assert core.patch_namespaced_config_map("wet", "default", {"data": {"a": "b"}}, dry_run="All").data == {"a": "b"}
    core.delete_namespaced_config_map("wet", "default", dry_run="All")
    assert core.read_namespaced_config_map("wet", "default").to_dict() == kept.to_dict()


def test_replace_needs_the_current_version(custom: client.CustomObjectsApi, door: Door) -> None:
    job = custom.create_namespaced_custom_object(*WHERE, trainjob("put"))
    first = {**job, "metadata": {**job["metadata"], "labels": {"a": "b"}}}
    second = custom.replace_namespaced_custom_object(*WHERE, "put", first)
    assert second["metadata"]["labels"] == {"a": "b"}
    with pytest.raises(ApiException) as raised:
        custom.replace_namespaced_custom_object(*WHERE, "put", first)
    assert raised.value.status == 409
    assert (
        "the object has been modified; please apply your changes to the latest version and try again"
        in raised.value.body
    )

    without = door.ask("PUT", f"{TRAINJOBS}/put", trainjob("put"))
    assert without.code == 422
    assert without.message.endswith("metadata.resourceVersion: Invalid value: 0: must be specified for an update")
    other = {**second, "metadata": {**second["metadata"], "uid": "zzz"}}
    assert "Precondition failed: UID in precondition: zzz" in door.ask("PUT", f"{TRAINJOBS}/put", other).message
    elsewhere = door.ask("PUT", f"{TRAINJOBS}/b", second)
    assert elsewhere.message == "the name of the object (put) does not match the name on the URL (b)"
    assert door.ask("PUT", f"{TRAINJOBS}/none", trainjob("none")).code == 404


def test_builtin_kinds_may_be_replaced_without_a_version(core: client.CoreV1Api) -> None:
    core.create_namespaced_config_map("default", {"metadata": {"name": "blind"}, "data": {"a": "b"}})
    replaced = core.replace_namespaced_config_map(
        "blind", "default", {"metadata": {"name": "blind"}, "data": {"c": "d"}}
    )
    assert replaced.data == {"c": "d"}


def test_patches(core: client.CoreV1Api, door: Door) -> None:
    core.create_namespaced_config_map("default", {"metadata": {"name": "p"}, "data": {"a": "1", "b": "2"}})
    assert core.patch_namespaced_config_map("p", "default", {"data": {"a": None, "c": "3"}}).data == {
        "b": "2",
        "c": "3",
    }
    operations = [{"op": "replace", "path": "/data/b", "value": "4"}, {"op": "remove", "path": "/data/c"}]
    assert core.patch_namespaced_config_map("p", "default", operations).data == {"b": "4"}

    path = f"{CONFIGMAPS}/p"
    old = door.ask("PATCH", path, {"metadata": {"resourceVersion": "1"}}, kind=MERGE)
    assert (old.code, old.json["reason"]) == (409, "Conflict")
    assert door.ask("PATCH", path, {"metadata": {"name": "q"}}, kind=MERGE).code == 400
    assert "metadata.uid" in door.ask("PATCH", path, {"metadata": {"uid": "q"}}, kind=MERGE).message
    failed = door.ask(
        "PATCH", path, [{"op": "test", "path": "/data/b", "value": "5"}], kind="application/json-patch+json"
    )
    assert (failed.code, failed.message) == (422, "the server rejected our request due to an error in our request")
    assert door.ask("PATCH", path, {}, kind="application/json").code == 415
    assert "[]handlers.jsonPatchOp" in door.ask("PATCH", path, {}, kind="application/json-patch+json").message
    assert door.ask("PATCH", f"{CONFIGMAPS}/none", {}, kind=MERGE).code == 404
    strategic = door.ask("PATCH", f"{TRAINJOBS}/none", {}, kind="application/strategic-merge-patch+json")
    assert strategic.code == 404  # found out before the kind of patch matters


def test_a_strategic_patch_of_a_custom_resource_is_refused(door: Door) -> None:
    door.ask("POST", TRAINJOBS, trainjob("strategic"))
    answer = door.ask("PATCH", f"{TRAINJOBS}/strategic", {}, kind="application/strategic-merge-patch+json")
    assert (answer.code, answer.json["reason"]) == (415, "UnsupportedMediaType")


def test_a_write_that_changes_nothing_is_no_write(core: client.CoreV1Api, door: Door) -> None:
    created = core.create_namespaced_config_map("default", {"metadata": {"name": "same"}, "data": {"a": "b"}})
    before = door.registry.store.version
    patched = core.patch_namespaced_config_map("same", "default", {"data": {"a": "b"}})
    assert patched.metadata.resource_version == created.metadata.resource_version
    assert door.registry.store.version == before


def test_spec_and_status_are_apart(custom: client.CustomObjectsApi) -> None:
    status = {
        "jobsStatus": [dict.fromkeys(("active", "failed", "ready", "succeeded", "suspended"), 0) | {"name": "node"}]
    }
    job = custom.create_namespaced_custom_object(*WHERE, {**trainjob("split"), "status": status})
    assert "status" not in job
    assert job["metadata"]["generation"] == 1

    changed = custom.patch_namespaced_custom_object_status(
        *WHERE, "split", {"spec": {"suspend": True}, "metadata": {"labels": {"a": "b"}}, "status": status}
    )
    assert changed["status"] == status
    assert changed["spec"]["suspend"] is False
    assert "labels" not in changed["metadata"]
    assert changed["metadata"]["generation"] == 1

    spec = custom.patch_namespaced_custom_object(
        *WHERE, "split", {"spec": {"suspend": True}, "status": {"conditions": []}}
    )
    assert spec["status"] == status
    assert spec["metadata"]["generation"] == 2
    label = custom.patch_namespaced_custom_object(*WHERE, "split", {"metadata": {"labels": {"a": "b"}}})
    assert label["metadata"]["generation"] == 2
    assert custom.get_namespaced_custom_object_status(*WHERE, "split")["metadata"]["labels"] == {"a": "b"}


def test_pods_are_bound_once_and_keep_their_spec(core: client.CoreV1Api, door: Door) -> None:
    created = core.create_namespaced_pod("default", pod("bound"))
    assert created.status.phase == "Pending"
    path = "/api/v1/namespaces/default/pods/bound"
    binding = {"metadata": {"name": "bound"}, "target": {"kind": "Node", "name": "n1"}}
    assert door.ask("POST", f"{path}/binding", binding).code == 201
    assert core.read_namespaced_pod("bound", "default").spec.node_name == "n1"
    again = door.ask("POST", f"{path}/binding", binding)
    assert again.code == 409
    assert again.message.endswith('pods/binding "bound": pod bound is already assigned to node "n1"')
    assert door.ask("POST", f"{path}/binding", {"target": {"name": "n1"}}).code == 400
    moved = door.ask("PATCH", path, {"spec": {"nodeName": "n2"}}, kind=MERGE)
    assert moved.code == 422
    assert moved.message.startswith('Pod "bound" is invalid: spec: Forbidden: pod updates may not change fields other')
    running = core.patch_namespaced_pod_status("bound", "default", {"status": {"phase": "Running"}})
    assert (running.status.phase, running.spec.node_name) == ("Running", "n1")
    assert running.status.conditions[0].type == "PodScheduled"


def test_secrets_are_encoded(core: client.CoreV1Api) -> None:
    created = core.create_namespaced_secret("default", client.V1Secret(metadata={"name": "s"}, string_data={"a": "b"}))
    assert (created.data, created.type, created.string_data) == ({"a": "Yg=="}, "Opaque", None)


def test_events_have_two_shapes(door: Door) -> None:
    api = client.CoreV1Api(door.client())
    event = {
        "metadata": {"name": "e1"},
        "involvedObject": {"kind": "Pod", "name": "p"},
        "reason": "Started",
        "message": "it runs",
        "source": {"component": "kubelet"},
        "type": "Normal",
    }
    api.create_namespaced_event("default", event)
    new = door.ask("GET", "/apis/events.k8s.io/v1/namespaces/default/events/e1").json
    assert (new["note"], new["regarding"]["name"]) == ("it runs", "p")
    assert new["deprecatedSource"] == {"component": "kubelet"}
    found = door.ask("GET", "/apis/events.k8s.io/v1/namespaces/default/events?fieldSelector=regarding.name%3Dp").json
    assert [item["metadata"]["name"] for item in found["items"]] == ["e1"]
    assert "involvedObject" not in found["items"][0]

    sent = {
        "metadata": {"name": "e2"},
        "regarding": {"kind": "Pod", "name": "q"},
        "note": "from new",
        "type": "Warning",
    }
    assert door.ask("POST", "/apis/events.k8s.io/v1/namespaces/default/events", sent).json["note"] == "from new"
    listed = api.list_namespaced_event("default", field_selector="involvedObject.name=q,type=Warning").items
    assert [(item.message, item.involved_object.kind) for item in listed] == [("from new", "Pod")]
    patch = door.ask("PATCH", "/apis/events.k8s.io/v1/namespaces/default/events/e2", {"note": "again"}, kind=MERGE)
    assert patch.json["note"] == "again"
    assert api.read_namespaced_event("e2", "default").message == "again"


def test_namespaces_bring_their_service_account(core: client.CoreV1Api) -> None:
    created = core.create_namespace({"metadata": {"name": "fresh"}})
    assert created.status.phase == "Active"
    assert created.metadata.labels == {"kubernetes.io/metadata.name": "fresh"}
    assert [account.metadata.name for account in core.list_namespaced_service_account("fresh").items] == ["default"]


def test_discovery_and_version(door: Door) -> None:
    api = door.client()
    assert client.VersionApi(api).get_code().git_version.startswith("v1.")
    groups = {group.name for group in client.ApisApi(api).get_api_versions().groups}
    assert {"batch", "trainer.kubeflow.org", "jobset.x-k8s.io", "rbac.authorization.k8s.io", "events.k8s.io"} <= groups
    core = {resource.name: resource for resource in client.CoreV1Api(api).get_api_resources().resources}
    assert core["pods"].short_names == ["po"]
    assert core["pods/log"].verbs == ["get"]
    assert core["namespaces"].namespaced is False
    jobs = client.CustomObjectsApi(api).get_api_resources("trainer.kubeflow.org", "v1alpha1").resources
    assert "trainjobs/status" in {resource.name for resource in jobs}
    for path, text in [("/healthz", "ok"), ("/readyz", "ok"), ("/livez", "ok")]:
        assert door.ask("GET", path).text == text
    for path in ("/nope", "/apis/nope/v1", "/apis/nope", "/openapi/v3/apis/nope/v1"):
        assert (door.ask("GET", path).code, door.ask("GET", path).text) == (404, "404 page not found\n")
    assert door.ask("DELETE", "/version").code == 405
    assert door.ask("PUT", TRAINJOBS).message == "name must be provided"


@pytest.mark.parametrize("odd", [1, "x", [], [1], [{}], {"a": 1}, True, 1.5, None])
def test_odd_bodies_are_the_clients_fault(door: Door, odd: object) -> None:
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
        answer = door.ask(method, path, json.dumps(body))
        assert answer.code < 500, (method, path, body, answer.text)
