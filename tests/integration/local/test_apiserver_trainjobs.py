"""Tests of the TrainJobs that the schema of Trainer 2.3 accepts or rejects.

The error messages are those of the real API server.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.local.served_registry import MERGE_PATCH, TRAINJOBS, ServedRegistry, serve_registry, trainjob
from trainjob_local.apiserver import Operation, Reader, Stage, StatusError


def patches(pod_spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the `runtimePatches` that set this pod spec in the replicated job `node`."""
    template = {"spec": {"template": {"spec": pod_spec}}}
    jobs = {"replicatedJobs": [{"name": "node", "template": template}]}
    return [{"manager": "a.io/b", "trainingRuntimeSpec": {"template": {"spec": jobs}}}]


@pytest.fixture(scope="module")
def served() -> Iterator[ServedRegistry]:
    with serve_registry() as opened:
        yield opened


def test_a_trainjob_with_all_fields_is_stored_unchanged(served: ServedRegistry) -> None:
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
    created = served.request("POST", f"{TRAINJOBS}?fieldValidation=Strict", body)
    assert created.code == 201, created.text
    sent = body["spec"]
    assert {key: created.json["spec"][key] for key in sent if key != "runtimeRef"} == {
        key: value for key, value in sent.items() if key != "runtimeRef"
    }


def test_the_status_is_checked_against_its_schema(served: ServedRegistry) -> None:
    served.request("POST", TRAINJOBS, trainjob("status"))
    path = f"{TRAINJOBS}/status/status"
    missing = served.request(
        "PATCH", path, {"status": {"jobsStatus": [{"name": "a"}], "bogus": 1}}, content_type=MERGE_PATCH
    )
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
    wrong = served.request("PATCH", path, {"status": {"conditions": [condition]}}, content_type=MERGE_PATCH)
    assert (
        'conditions[0].status: Unsupported value: "Maybe": supported values: "True", "False", "Unknown"'
        in wrong.message
    )
    typed = served.request("PATCH", path, {"status": {"conditions": "x"}}, content_type=MERGE_PATCH)
    assert 'status.conditions in body must be of type array: "string"' in typed.message
    assert (
        served.request(
            "PATCH", path, {"status": {"conditions": [{**condition, "status": "True"}]}}, content_type=MERGE_PATCH
        ).code
        == 200
    )


def test_every_openapi_document_is_served(served: ServedRegistry) -> None:
    for path in served.request("GET", "/openapi/v3").json["paths"].values():
        assert served.request("GET", path["serverRelativeURL"]).code == 200


def test_the_openapi_document_has_the_fields_that_kubectl_reads(served: ServedRegistry) -> None:
    """The document has a path's kind for `kubectl explain`, and a patch's parameters for validation (kubectl 1.36)."""
    paths = served.request("GET", "/openapi/v3/apis/trainer.kubeflow.org/v1alpha1").json["paths"]
    many = paths["/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs"]
    one = paths["/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs/{name}"]
    kind = {"group": "trainer.kubeflow.org", "kind": "TrainJob", "version": "v1alpha1"}
    actions = {method: many[method]["x-kubernetes-action"] for method in ("get", "post", "delete")}
    assert actions == {"get": "list", "post": "post", "delete": "deletecollection"}
    assert all(one[method]["x-kubernetes-group-version-kind"] == kind for method in ("get", "put", "patch", "delete"))
    assert "fieldValidation" in [parameter["name"] for parameter in one["patch"]["parameters"]]
    assert [parameter["name"] for parameter in one["parameters"]] == ["name", "namespace"]


def test_the_schema_agrees_with_the_generated_models(served: ServedRegistry) -> None:
    """The published models of Trainer 2.3 have the same fields."""
    models = pytest.importorskip("kubeflow_trainer_api.models")
    schema = served.request("GET", "/openapi/v3/apis/trainer.kubeflow.org/v1alpha1").json["components"]["schemas"]
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


def test_admission_rules_apply_in_the_order_of_webhooks() -> None:
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
            raise StatusError(403, "Forbidden", 'admission webhook "x" denied the request: not now')
        return new

    with serve_registry() as served:
        served.registry.add_admission("trainjobs", mutate)
        served.registry.add_admission("trainjobs", validate, stage=Stage.VALIDATING)
        assert served.request("POST", TRAINJOBS, trainjob("a")).json["spec"]["suspend"] is True
        assert served.request("POST", TRAINJOBS, trainjob("b", activeDeadlineSeconds=0)).code == 422
        assert order == [("mutating", "CREATE", False), ("validating", "CREATE", True), ("mutating", "CREATE", False)]
        order.clear()
        served.request("PATCH", f"{TRAINJOBS}/a/status", {"status": {}}, content_type=MERGE_PATCH)
        assert order == []
        served.request("PATCH", f"{TRAINJOBS}/a", {"metadata": {"labels": {"a": "b"}}}, content_type=MERGE_PATCH)
        assert order == [("mutating", "UPDATE", True), ("validating", "UPDATE", True)]
        refused = served.request("DELETE", f"{TRAINJOBS}/a")
        assert (refused.code, refused.message) == (403, 'admission webhook "x" denied the request: not now')
        assert served.request("GET", f"{TRAINJOBS}/a").code == 200
