"""TrainJobs: what the schema of Trainer 2.3 accepts and refuses, with the texts of the real server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from apiserver_door import MERGE, TRAINJOBS, Door, serving, trainjob
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from trainjob.local.apiserver import Operation, Reader, Refusal, Stage

DECODER = 'admission webhook "defaulter.trainjob.trainer.kubeflow.org" denied the request: '
FIELD = "json: cannot unmarshal {} into Go struct field {} of type {}"
INVALID = 'TrainJob.trainer.kubeflow.org "bad" is invalid: '
UNCHECKED = (
    ", <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the "
    "existing errors to complete validation]"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_1035 = "<nil>: Invalid value: metadata.name must match RFC 1035 DNS label format"
POD_SPEC = "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec"
GO_POD_SPEC = POD_SPEC.replace("[0]", "")


def patches(pod_spec: dict[str, Any]) -> list[dict[str, Any]]:
    """A runtimePatch of the pods of `node`."""
    template = {"spec": {"template": {"spec": pod_spec}}}
    jobs = {"replicatedJobs": [{"name": "node", "template": template}]}
    return [{"manager": "a.io/b", "trainingRuntimeSpec": {"template": {"spec": jobs}}}]


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    with serving() as opened:
        yield opened


def test_defaults(door: Door) -> None:
    created = door.ask("POST", TRAINJOBS, trainjob("defaults"))
    assert created.json["spec"] == {
        "runtimeRef": {
            "name": "torch-distributed",
            "apiGroup": "trainer.kubeflow.org",
            "kind": "ClusterTrainingRuntime",
        },
        "managedBy": "trainer.kubeflow.org/trainjob-controller",
        "suspend": False,
    }


def test_a_full_trainjob_is_accepted_as_it_is(door: Door) -> None:
    env = [
        {"name": "A", "value": "b"},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
    ]
    pod_spec = {
        "serviceAccountName": "sa",
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "tolerationSeconds": 3}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
        "imagePullSecrets": [{"name": "pull"}],
        "schedulingGates": [{"name": "gate"}],
        "securityContext": {"fsGroup": 1000},
        "terminationGracePeriodSeconds": 5,
        "volumes": [
            {"name": "workspace", "persistentVolumeClaim": {"claimName": "c", "readOnly": False}},
            {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}},
        ],
        "containers": [
            {"name": "node", "volumeMounts": [{"name": "workspace", "mountPath": "/workspace", "subPath": "x"}]}
        ],
        "initContainers": [{"name": "init", "env": env, "securityContext": {"runAsUser": 1000}}],
    }
    source = {"storageUri": "hf://a/b", "env": env, "secretRef": {"name": "s"}}
    body = trainjob(
        "full",
        trainer={
            "image": "i",
            "command": ["a"],
            "args": ["b"],
            "env": env,
            "numNodes": 2,
            "numProcPerNode": 1,
            "resourcesPerNode": {"limits": {"nvidia.com/gpu": 1, "cpu": "500m"}, "requests": {"memory": "1e3"}},
        },
        initializer={"dataset": source, "model": source},
        runtimePatches=patches(pod_spec),
        suspend=True,
        activeDeadlineSeconds=60,
        managedBy="kueue.x-k8s.io/multikueue",
    )
    created = door.ask("POST", f"{TRAINJOBS}?fieldValidation=Strict", body)
    assert created.code == 201, created.text
    sent = body["spec"]
    assert {key: created.json["spec"][key] for key in sent if key != "runtimeRef"} == {
        key: value for key, value in sent.items() if key != "runtimeRef"
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x" * 64, "<nil>: Invalid value: metadata.name must be no more than 63 characters"),
        ("a.b", LABEL_1035),
        ("1abc", LABEL_1035),
        ("Upper", f'[metadata.name: Invalid value: "Upper": {SUBDOMAIN}, {LABEL_1035}]'),
        ("a_b", f'[metadata.name: Invalid value: "a_b": {SUBDOMAIN}, {LABEL_1035}]'),
        ("", f"[metadata.name: Required value: name or generateName is required{UNCHECKED}"),
    ],
)
def test_names(door: Door, name: str, text: str) -> None:
    answer = door.ask("POST", TRAINJOBS, trainjob(name))
    assert (answer.code, answer.json["reason"]) == (422, "Invalid")
    assert answer.message == f'TrainJob.trainer.kubeflow.org "{name}" is invalid: {text}'


@pytest.mark.parametrize(
    ("spec", "what", "field", "go"),
    [
        ({"trainer": {"numNodes": "2"}}, "string", "Trainer.spec.trainer.numNodes", "int32"),
        ({"trainer": {"numNodes": 1.5}}, "number 1.5", "Trainer.spec.trainer.numNodes", "int32"),
        ({"trainer": {"numNodes": 2**31}}, "number 2147483648", "Trainer.spec.trainer.numNodes", "int32"),
        ({"trainer": {"command": "x"}}, "string", "Trainer.spec.trainer.command", "[]string"),
        ({"trainer": {"command": [1]}}, "number", "Trainer.spec.trainer.command", "string"),
        ({"trainer": {"env": [{"name": "A", "value": 3}]}}, "number", "EnvVar.spec.trainer.env.value", "string"),
        ({"trainer": "x"}, "string", "TrainJobSpec.spec.trainer", "v1alpha1.Trainer"),
        ({"trainer": []}, "array", "TrainJobSpec.spec.trainer", "v1alpha1.Trainer"),
        ({"suspend": "yes"}, "string", "TrainJobSpec.spec.suspend", "bool"),
        ({"activeDeadlineSeconds": "3"}, "string", "TrainJobSpec.spec.activeDeadlineSeconds", "int64"),
        ({"runtimeRef": "x"}, "string", "TrainJobSpec.spec.runtimeRef", "v1alpha1.RuntimeRef"),
        (
            {"initializer": {"dataset": {"storageUri": 3}}},
            "number",
            "DatasetInitializer.spec.initializer.dataset.storageUri",
            "string",
        ),
        ({"runtimePatches": {"x": 1}}, "object", "TrainJobSpec.spec.runtimePatches", "[]v1alpha1.RuntimePatch"),
        ({"runtimePatches": ["x"]}, "string", "TrainJobSpec.spec.runtimePatches", "v1alpha1.RuntimePatch"),
        ({"runtimePatches": patches({"volumes": "x"})}, "string", f"PodSpecPatch.{GO_POD_SPEC}.volumes", "[]v1.Volume"),
    ],
)
def test_wrong_types_fail_in_the_webhook(door: Door, spec: dict[str, Any], what: str, field: str, go: str) -> None:
    answer = door.ask("POST", TRAINJOBS, trainjob("bad", **spec))
    assert answer.code == 400
    assert "reason" not in answer.json
    assert answer.message == DECODER + FIELD.format(what, field, go)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"trainer": {"env": [{"value": "x"}]}}, f"[spec.trainer.env[0].name: Required value{UNCHECKED}"),
        (
            {"trainer": {"env": [{"name": "A"}, {"name": "A"}]}},
            'spec.trainer.env[1]: Duplicate value: {"name":"A"}',
        ),
        (
            {"trainer": {"image": "x" * 501}},
            f"[spec.trainer.image: Too long: may not be more than 500 bytes{UNCHECKED}",
        ),
        (
            {"trainer": {"command": ["x"] * 129}},
            f"[spec.trainer.command: Too many: 129: must have at most 128 items{UNCHECKED}",
        ),
        (
            {"activeDeadlineSeconds": 0},
            (
                "spec.activeDeadlineSeconds: Invalid value: 0: spec.activeDeadlineSeconds in body should be greater "
                "than or equal to 1"
            ),
        ),
        (
            {"managedBy": "foo"},
            (
                'spec.managedBy: Invalid value: "foo": ManagedBy must be trainer.kubeflow.org/trainjob-controller or '
                "kueue.x-k8s.io/multikueue if set"
            ),
        ),
        (
            {"runtimeRef": {"name": ""}},
            'spec.runtimeRef.name: Invalid value: "": spec.runtimeRef.name in body should be at least 1 chars long',
        ),
        ({"runtimeRef": {}}, f"[spec.runtimeRef.name: Required value{UNCHECKED}"),
        ({"runtimeRef": None}, f"[spec.runtimeRef: Required value{UNCHECKED}"),
        (
            {"initializer": {"dataset": {"storageUri": "no-scheme"}}},
            (
                'spec.initializer.dataset.storageUri: Invalid value: "no-scheme": storageUri may be empty, or it must '
                "be a valid URI (scheme://...)"
            ),
        ),
        (
            {"runtimePatches": [{"manager": "a.io/b"}, {"manager": "a.io/b"}]},
            'spec.runtimePatches[1]: Duplicate value: {"manager":"a.io/b"}',
        ),
        ({"runtimePatches": [{}]}, f"[spec.runtimePatches[0].manager: Required value{UNCHECKED}"),
        (
            {"runtimePatches": [{"manager": f"a.io/{number}"} for number in range(17)]},
            f"[spec.runtimePatches: Too many: 17: must have at most 16 items{UNCHECKED}",
        ),
        (
            {
                "runtimePatches": patches(
                    {"containers": [{"name": "node", "volumeMounts": [{"name": "a", "mountPath": p} for p in "xy"]}]}
                )
            },
            f'{POD_SPEC}.containers[0].volumeMounts[1]: Duplicate value: {{"name":"a"}}',
        ),
        (
            {"runtimePatches": patches({"containers": [{"volumeMounts": [{"name": "a"}]}]})},
            f"[{POD_SPEC}.containers[0].name: Required value{UNCHECKED}",
        ),
    ],
)
def test_what_the_schema_refuses(door: Door, spec: dict[str, Any], text: str) -> None:
    answer = door.ask("POST", TRAINJOBS, trainjob("bad", **spec))
    assert (answer.code, answer.json["reason"]) == (422, "Invalid")
    assert answer.message == INVALID + text


@pytest.mark.parametrize(
    "spec",
    [
        {"initializer": {"dataset": {"storageUri": ""}, "model": {"storageUri": "ftp://x"}}},
        {"trainer": {"numNodes": 0}},
        {"trainer": {"numNodes": -1}},
        {"trainer": None},
        {"runtimePatches": []},
    ],
)
def test_what_the_schema_lets_pass(door: Door, spec: dict[str, Any]) -> None:
    body = trainjob("x", **spec)
    body["metadata"] = {"generateName": "passes-"}
    assert door.ask("POST", TRAINJOBS, body).code == 201


def test_quantities(door: Door) -> None:
    bad = door.ask("POST", TRAINJOBS, trainjob("bad", trainer={"resourcesPerNode": {"limits": {"cpu": "abc"}}}))
    assert (
        bad.message
        == f"{DECODER}quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )


UNKNOWN = {"tolerations": [{"bogus": 1}], "volumes": [{"name": "a", "nope": {}}], "hostNetwork": True}


def test_unknown_fields_strict(door: Door) -> None:
    body = trainjob("strict", bogus=1, runtimePatches=patches(UNKNOWN))
    answer = door.ask("POST", f"{TRAINJOBS}?fieldValidation=Strict", body)
    assert (answer.code, answer.json["reason"]) == (400, "BadRequest")
    fields = [
        "spec.bogus",
        *(f"{POD_SPEC}.{name}" for name in ("hostNetwork", "tolerations[0].bogus", "volumes[0].nope")),
    ]
    assert answer.message == (
        'TrainJob in version "v1alpha1" cannot be handled as a TrainJob: strict decoding error: '
        + ", ".join(f'unknown field "{field}"' for field in fields)
    )
    top = {**trainjob("strict"), "bogus": 1, "metadata": {"name": "strict", "bogus": 1}}
    text = door.ask("POST", f"{TRAINJOBS}?fieldValidation=Strict", top).message
    assert text.endswith('strict decoding error: unknown field "metadata.bogus", unknown field "bogus"')
    api = client.CustomObjectsApi(door.client())
    where = ("trainer.kubeflow.org", "v1alpha1", "default", "trainjobs")
    with pytest.raises(ApiException) as raised:
        api.create_namespaced_custom_object(*where, body, field_validation="Strict")
    assert raised.value.status == 400


def test_unknown_fields_are_dropped_with_a_warning(door: Door) -> None:
    answer = door.ask("POST", TRAINJOBS, trainjob("warned", bogus=1, podSpecOverrides=[]))
    assert answer.code == 201
    assert "bogus" not in answer.json["spec"]
    assert answer.headers["warning"] == r'299 - "unknown field \"spec.podSpecOverrides\""'  # the last of two
    refused = door.ask("POST", TRAINJOBS, trainjob("bad", bogus=1, activeDeadlineSeconds=0))
    assert refused.code == 422
    assert refused.headers["warning"] == r'299 - "unknown field \"spec.bogus\""'
    ignored = door.ask("POST", f"{TRAINJOBS}?fieldValidation=Ignore", trainjob("ignored", bogus=1))
    assert "warning" not in ignored.headers
    assert "bogus" not in ignored.json["spec"]
    assert (
        "fieldValidation: Unsupported value"
        in door.ask("POST", f"{TRAINJOBS}?fieldValidation=x", trainjob("y")).message
    )


def test_unknown_fields_of_a_patch(door: Door) -> None:
    door.ask("POST", TRAINJOBS, trainjob("patched"))
    path = f"{TRAINJOBS}/patched"
    warned = door.ask("PATCH", path, {"spec": {"bogus": 1}}, kind=MERGE)
    assert (warned.code, warned.headers["warning"]) == (200, r'299 - "unknown field \"spec.bogus\""')
    strict = door.ask("PATCH", f"{path}?fieldValidation=Strict", {"spec": {"bogus": 1}}, kind=MERGE)
    assert strict.code == 422
    assert strict.message.startswith(' "" is invalid: patch: Invalid value: "{')
    assert strict.message.endswith('strict decoding error: unknown field "spec.bogus"')


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"trainer": {"numNodes": 2}}, "spec.trainer: Invalid value: field is immutable"),
        ({"activeDeadlineSeconds": 9}, "spec.activeDeadlineSeconds: Invalid value: 9: field is immutable"),
        (
            {"runtimeRef": {"name": "x"}, "managedBy": "kueue.x-k8s.io/multikueue"},
            (
                '[spec.managedBy: Invalid value: "kueue.x-k8s.io/multikueue": field is immutable, '
                "spec.runtimeRef: Invalid value: field is immutable]"
            ),
        ),
        (
            {"runtimePatches": patches({"serviceAccountName": "other"})},
            f'{POD_SPEC}.serviceAccountName: Invalid value: "other": field is immutable',
        ),
    ],
)
def test_what_cannot_be_changed(door: Door, change: dict[str, Any], text: str) -> None:
    spec = {
        "trainer": {"numNodes": 1},
        "activeDeadlineSeconds": 3,
        "runtimePatches": patches({"serviceAccountName": "sa"}),
    }
    door.ask("POST", TRAINJOBS, trainjob("fixed", **spec))
    answer = door.ask("PATCH", f"{TRAINJOBS}/fixed", {"spec": change}, kind=MERGE)
    assert answer.code == 422
    assert answer.message == f'TrainJob.trainer.kubeflow.org "fixed" is invalid: {text}'


def test_what_can_be_changed(door: Door) -> None:
    door.ask(
        "POST",
        TRAINJOBS,
        trainjob("free", trainer={"numNodes": 1}, runtimePatches=patches({"nodeSelector": {"a": "b"}})),
    )
    for change in (
        {"suspend": True},
        {"trainer": None},  # a rule that compares with the old value needs a new one
        {"activeDeadlineSeconds": 3},  # and an old one
        {"runtimePatches": patches({"nodeSelector": {"a": "c"}})},
    ):
        assert door.ask("PATCH", f"{TRAINJOBS}/free", {"spec": change}, kind=MERGE).code == 200, change


def test_the_status_has_a_schema_too(door: Door) -> None:
    door.ask("POST", TRAINJOBS, trainjob("status"))
    path = f"{TRAINJOBS}/status/status"
    missing = door.ask("PATCH", path, {"status": {"jobsStatus": [{"name": "a"}], "bogus": 1}}, kind=MERGE)
    assert missing.code == 422
    assert (
        "[status.jobsStatus[0].active: Required value, status.jobsStatus[0].failed: Required value" in missing.message
    )
    assert missing.headers["warning"] == r'299 - "unknown field \"status.bogus\""'
    condition = {
        "type": "X",
        "status": "Maybe",
        "reason": "R",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    wrong = door.ask("PATCH", path, {"status": {"conditions": [condition]}}, kind=MERGE)
    assert (
        'conditions[0].status: Unsupported value: "Maybe": supported values: "True", "False", "Unknown"'
        in wrong.message
    )
    typed = door.ask("PATCH", path, {"status": {"conditions": "x"}}, kind=MERGE)
    assert 'status.conditions in body must be of type array: "string"' in typed.message
    assert (
        door.ask("PATCH", path, {"status": {"conditions": [{**condition, "status": "True"}]}}, kind=MERGE).code == 200
    )


def test_the_openapi_document_shows_the_dialect(door: Door) -> None:
    index = door.ask("GET", "/openapi/v3").json["paths"]
    url = index["apis/trainer.kubeflow.org/v1alpha1"]["serverRelativeURL"]
    schema = door.ask("GET", url).json["components"]["schemas"]["org.kubeflow.trainer.v1alpha1.TrainJob"]
    spec = schema["properties"]["spec"]["properties"]
    assert "runtimePatches" in spec
    assert "podTemplateOverrides" not in spec
    assert spec["trainer"]["properties"]["numProcPerNode"] == {"type": "integer", "format": "int32"}
    kind = {"group": "trainer.kubeflow.org", "kind": "TrainJob", "version": "v1alpha1"}
    assert schema["x-kubernetes-group-version-kind"] == [kind]
    assert [rule["message"] for rule in schema["x-kubernetes-validations"]] == [
        "metadata.name must match RFC 1035 DNS label format",
        "metadata.name must be no more than 63 characters",
    ]
    for path in index.values():
        assert door.ask("GET", path["serverRelativeURL"]).code == 200


def test_the_openapi_document_has_what_kubectl_looks_for(door: Door) -> None:
    """`kubectl explain` goes by a path's kind, its validation by the patch's parameters (kubectl 1.36)."""
    paths = door.ask("GET", "/openapi/v3/apis/trainer.kubeflow.org/v1alpha1").json["paths"]
    many = paths["/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs"]
    one = paths["/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs/{name}"]
    kind = {"group": "trainer.kubeflow.org", "kind": "TrainJob", "version": "v1alpha1"}
    actions = {method: many[method]["x-kubernetes-action"] for method in ("get", "post", "delete")}
    assert actions == {"get": "list", "post": "post", "delete": "deletecollection"}
    assert all(one[method]["x-kubernetes-group-version-kind"] == kind for method in ("get", "put", "patch", "delete"))
    assert "fieldValidation" in [parameter["name"] for parameter in one["patch"]["parameters"]]
    assert [parameter["name"] for parameter in one["parameters"]] == ["name", "namespace"]


def test_the_schema_agrees_with_the_generated_models(door: Door) -> None:
    """The published models of Trainer 2.3 know the same fields."""
    models = pytest.importorskip("kubeflow_trainer_api.models")
    schema = door.ask("GET", "/openapi/v3/apis/trainer.kubeflow.org/v1alpha1").json["components"]["schemas"]
    spec = schema["org.kubeflow.trainer.v1alpha1.TrainJob"]["properties"]["spec"]["properties"]
    patch = spec["runtimePatches"]["items"]["properties"]
    job = patch["trainingRuntimeSpec"]["properties"]["template"]["properties"]["spec"]["properties"]["replicatedJobs"][
        "items"
    ]
    pod_spec = job["properties"]["template"]["properties"]["spec"]["properties"]["template"]["properties"]["spec"]
    for model, fields in (
        ("TrainerV1alpha1TrainJobSpec", spec),
        ("TrainerV1alpha1Trainer", spec["trainer"]["properties"]),
        ("TrainerV1alpha1DatasetInitializer", spec["initializer"]["properties"]["dataset"]["properties"]),
        ("TrainerV1alpha1RuntimeRef", spec["runtimeRef"]["properties"]),
        ("TrainerV1alpha1RuntimePatch", patch),
        ("TrainerV1alpha1PodSpecPatch", pod_spec["properties"]),
        ("TrainerV1alpha1ContainerPatch", pod_spec["properties"]["containers"]["items"]["properties"]),
    ):
        known = {field.alias or name for name, field in getattr(models, model).model_fields.items()}
        assert known == set(fields), model


def test_admission_rules_stand_where_webhooks_do() -> None:
    order = []

    def mutate(operation: Operation, new: dict[str, Any], old: dict[str, Any] | None, reader: Reader) -> dict[str, Any]:
        order.append(("mutating", operation.value, old is not None))
        reader.get("namespaces", "default")
        return {**new, "spec": {**new["spec"], "suspend": True}}

    def validate(
        operation: Operation, new: dict[str, Any], old: dict[str, Any] | None, reader: Reader
    ) -> dict[str, Any]:
        order.append(("validating", operation.value, new["spec"]["suspend"]))
        if operation == Operation.DELETE:
            raise Refusal(403, "Forbidden", 'admission webhook "x" denied the request: not now')
        return new

    with serving() as door:
        door.registry.add_admission("trainjobs", mutate)
        door.registry.add_admission("trainjobs", validate, stage=Stage.VALIDATING)
        assert door.ask("POST", TRAINJOBS, trainjob("a")).json["spec"]["suspend"] is True
        assert door.ask("POST", TRAINJOBS, trainjob("b", activeDeadlineSeconds=0)).code == 422
        assert order == [("mutating", "CREATE", False), ("validating", "CREATE", True), ("mutating", "CREATE", False)]
        order.clear()
        door.ask("PATCH", f"{TRAINJOBS}/a/status", {"status": {}}, kind=MERGE)
        assert order == []
        door.ask("PATCH", f"{TRAINJOBS}/a", {"metadata": {"labels": {"a": "b"}}}, kind=MERGE)
        assert order == [("mutating", "UPDATE", True), ("validating", "UPDATE", True)]
        refused = door.ask("DELETE", f"{TRAINJOBS}/a")
        assert (refused.code, refused.message) == (403, 'admission webhook "x" denied the request: not now')
        assert door.ask("GET", f"{TRAINJOBS}/a").code == 200
