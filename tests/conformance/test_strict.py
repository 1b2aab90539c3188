"""Unknown fields are rejected, or dropped with or without a warning, such as pod patches of another version."""

from __future__ import annotations

import pytest

from tests.conformance.admission_cases import bad_request, case, dry_run_cases, runtime_patches
from tests.support.kubernetes_client import path_of
from tests.support.trainjobs import PATCH_FIELD, shell, train_job

POD = "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec"
NODES = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpression": []}]}}


def unknown_fields(*paths):
    return bad_request("strict decoding error: " + ", ".join(f'unknown field "{path}"' for path in paths))


def pod_patch_case(title, *paths, **pod):
    """Return a case with unknown fields in a patch of a pod's spec."""
    return case(
        title,
        unknown_fields(*(f"{POD}.{path}" for path in paths)),
        since=(2, 2),
        runtimePatches=runtime_patches(pod=pod),
    )


NESTED = [
    case("spec", unknown_fields("spec.bogus"), bogus=1),
    case(
        "another API's runtime",
        unknown_fields("spec.runtimeRef.apiVersion"),
        runtimeRef={"name": "x", "apiVersion": "y"},
    ),
    case(
        "several, in the order of names",
        unknown_fields("spec.a", "spec.initializer.b", "spec.trainer.c", "spec.z"),
        z=1,
        a={},
        trainer={"c": 1},
        initializer={"b": 1},
    ),
    case(
        "resources without limits",
        unknown_fields("spec.trainer.resourcesPerNode.cpu"),
        trainer={"resourcesPerNode": {"cpu": 1}},
    ),
    case(
        "a variable's val",
        unknown_fields("spec.trainer.env[1].val"),
        trainer={"env": [{"name": "A"}, {"name": "B", "val": "x"}]},
    ),
    case(
        "a Secret's reference",
        unknown_fields("spec.trainer.env[0].valueFrom.secretKeyRef.namespace"),
        trainer={"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "namespace": "n"}}}]},
    ),
    case(
        "a token for a model",
        unknown_fields("spec.initializer.model.accessToken"),
        initializer={"model": {"accessToken": "x"}},
    ),
    case(
        "more of the runtime than a patch may change",
        unknown_fields(
            "spec.runtimePatches[0].trainingRuntimeSpec.mlPolicy",
            "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.failurePolicy",
        ),
        since=(2, 2),
        runtimePatches=[
            {"manager": "a.io/b", "trainingRuntimeSpec": {"mlPolicy": {}, "template": {"spec": {"failurePolicy": {}}}}}
        ],
    ),
    pod_patch_case(
        "pod",
        "hostNetwork",
        "priorityClassName",
        "restartPolicy",
        restartPolicy="Never",
        hostNetwork=True,
        priorityClassName="x",
    ),
    pod_patch_case(
        "container",
        "containers[0].image",
        "containers[0].resources",
        containers=[{"name": "node", "image": "x", "resources": {}}],
    ),
]
# The laptop cluster stores these parts of a patch without validation.
DEEP = [
    pod_patch_case(
        "affinity",
        "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpression",
        affinity={"nodeAffinity": NODES},
    ),
    pod_patch_case("tolerations", "tolerations[0].keys", tolerations=[{"keys": "a"}]),
    pod_patch_case(
        "volumes",
        "volumes[0].pvc",
        "volumes[1].secret.name",
        "volumes[2].persistentVolumeClaim.name",
        "volumes[3].projected.sources[0].secret.secretName",
        volumes=[
            {"name": "a", "pvc": {}},
            {"name": "b", "secret": {"name": "x"}},
            {"name": "c", "persistentVolumeClaim": {"claimName": "x", "name": "x"}},
            {"name": "d", "projected": {"sources": [{"secret": {"secretName": "x"}}]}},
        ],
    ),
    pod_patch_case(
        "security contexts",
        "containers[0].securityContext.fsGroup",
        "securityContext.runAsUsr",
        securityContext={"runAsUsr": 1},
        containers=[{"name": "node", "securityContext": {"fsGroup": 1}}],
    ),
]
DIALECTS = {
    # field: an example, the first version that has the field, and the first version that no longer has it
    "podSpecOverrides": ([{"targetJobs": [{"name": "node"}], "nodeSelector": {"a": "b"}}], (2, 0), (2, 1)),
    "podTemplateOverrides": (
        [{"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"a": "b"}}}],
        (2, 1),
        (2, 2),
    ),
    "runtimePatches": (runtime_patches(pod={"nodeSelector": {"a": "b"}}), (2, 2), (99, 0)),
    "labels": ({"a": "b"}, (2, 0), (2, 2)),
    "annotations": ({"a": "b"}, (2, 0), (2, 2)),
    "activeDeadlineSeconds": (60, (2, 2), (99, 0)),
    "podGroupPolicy": ({"coscheduling": {}}, (99, 0), (99, 0)),
    "trainSpec": ({"image": "x"}, (99, 0), (99, 0)),
}


def dry_run(client, namespace, job, **query):
    return client.request("POST", path_of("TrainJob", namespace), job, **{"dryRun": "All", **query})


def test_unknown_fields(client, namespace, target):
    """With Strict, unknown fields get 400 with all their paths, in the order of their names."""
    found, expected = dry_run_cases(client, namespace, target.trainer, NESTED, fieldValidation="Strict")
    assert found == expected


@pytest.mark.since("2.2")
def test_unknown_fields_of_patches(client, namespace, target):
    """With Strict, unknown fields in affinity, tolerations, volumes and security contexts get 400 too."""
    found, expected = dry_run_cases(client, namespace, target.trainer, DEEP, fieldValidation="Strict")
    assert found == expected


@pytest.mark.parametrize("field", DIALECTS)
def test_fields_of_other_versions(client, namespace, target, field):
    """Fields of another version get 400 with Strict. Without it they are silently dropped."""
    value, since, before = DIALECTS[field]
    job = train_job(**{field: value})
    strict = dry_run(client, namespace, job, fieldValidation="Strict")
    dropped = dry_run(client, namespace, job, fieldValidation="Ignore")
    warned = dry_run(client, namespace, job)
    assert (dropped.code, warned.code) == (201, 201)
    if since <= target.trainer < before:
        assert strict.code == 201
        assert field in strict.body["spec"]
        return
    assert (strict.code, strict.reason) == (400, "BadRequest")
    assert strict.message == unknown_fields(f"spec.{field}").message
    assert field not in {**dropped.body["spec"], **warned.body["spec"]}
    assert dropped.headers.get("warning") is None
    assert warned.headers["warning"] == f'299 - "unknown field \\"spec.{field}\\""'


@pytest.mark.before("2.3")
def test_grace_period_before_2_3(client, namespace, target):
    """terminationGracePeriodSeconds in a patch is unknown before 2.3: Strict rejects it, otherwise it is dropped."""
    if target.trainer >= (2, 2):
        spec, path = {"runtimePatches": runtime_patches(pod={"terminationGracePeriodSeconds": 5})}, POD
    else:
        targets = {"targetJobs": [{"name": "node"}], "spec": {"terminationGracePeriodSeconds": 5}}
        spec, path = {"podTemplateOverrides": [targets]}, "spec.podTemplateOverrides[0].spec"
    strict = dry_run(client, namespace, train_job(**spec), fieldValidation="Strict")
    assert strict.message == unknown_fields(f"{path}.terminationGracePeriodSeconds").message
    assert "terminationGracePeriodSeconds" not in str(dry_run(client, namespace, train_job(**spec)).body["spec"])


def test_unknown_fields_of_updates(client, namespace):
    """With Strict, an update with an unknown field is rejected too: a PUT gets 400, a merge patch 422."""
    created = client.create(train_job(suspend=True), namespace)
    path = path_of("TrainJob", namespace, "job")
    changed = {**created, "spec": {**created["spec"], "bogus": 1}}
    put = client.request("PUT", path, changed, fieldValidation="Strict", dryRun="All")
    assert (put.code, put.message) == (400, unknown_fields("spec.bogus").message)
    patch = client.request("PATCH", path, {"spec": {"bogus": 1}}, fieldValidation="Strict")
    assert (patch.code, patch.reason) == (422, "Invalid")
    assert patch.message.startswith(' "" is invalid: patch: Invalid value: "{')
    assert patch.message.endswith('strict decoding error: unknown field "spec.bogus"')
    warned = client.request("PATCH", path, {"spec": {"bogus": 1}})
    assert (warned.code, warned.headers["warning"]) == (200, '299 - "unknown field \\"spec.bogus\\""')
    assert client.get("TrainJob", namespace, "job")["spec"] == created["spec"]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        (
            {"fieldValidation": "x"},
            'fieldValidation: Unsupported value: "x": supported values: "", "Ignore", "Strict", "Warn"',
        ),
        ({"dryRun": "x"}, 'dryRun: Unsupported value: ["x"]: supported values: "All"'),
    ],
    ids=["fieldValidation", "dryRun"],
)
def test_unknown_options(client, namespace, query, text):
    """Other values of fieldValidation and dryRun get 422."""
    response = client.request("POST", path_of("TrainJob", namespace), train_job(), **query)
    assert (response.code, response.message) == (422, f'CreateOptions.meta.k8s.io "" is invalid: {text}')


def test_dry_run(client, namespace):
    """dryRun=All gets the usual response, but nothing is created, changed, deleted or started."""
    path = path_of("TrainJob", namespace)
    created = client.request("POST", path, shell("true"), dryRun="All")
    assert created.code == 201
    assert created.body["metadata"]["uid"]
    assert client.find("TrainJob", namespace, "job") is None
    assert client.request("POST", path, train_job(runtime="nope"), dryRun="All").code == 403
    kept = client.create(train_job(suspend=True), namespace)
    assert client.request("POST", path, train_job(), dryRun="All").code == 409
    changed = client.request("PATCH", f"{path}/job", {"spec": {"suspend": False}}, dryRun="All")
    assert changed.body["spec"]["suspend"] is False
    assert client.request("DELETE", f"{path}/job", {"dryRun": ["All"]}).ok
    now = client.get("TrainJob", namespace, "job")
    assert (now["metadata"]["uid"], now["spec"]) == (kept["metadata"]["uid"], kept["spec"])


def test_pod_patch_field_of_this_version(client, target, namespace):
    """The OpenAPI document names exactly one field for pod patches, that of this version."""
    document = client.request("GET", "/openapi/v3/apis/trainer.kubeflow.org/v1alpha1").body["components"]["schemas"]
    spec = document["org.kubeflow.trainer.v1alpha1.TrainJob"]["properties"]["spec"]["properties"]
    known = {"podSpecOverrides", "podTemplateOverrides", "runtimePatches"} & set(spec)
    assert known == {PATCH_FIELD.get(target.trainer, "runtimePatches")}
