"""Fields of a TrainJob that can change after its creation, tested on a suspended and on a running job."""

from __future__ import annotations

import pytest

from tests.conformance.admission_cases import ResponseSummary, denied, invalid
from tests.support.kubernetes_client import path_of
from tests.support.trainjobs import counters, shell

POD = "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec"
PATCH = {
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "serviceAccountName": "default",
    "imagePullSecrets": [{"name": "x"}],
    "volumes": [{"name": "v", "emptyDir": {}}],
    "containers": [{"name": "node", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
}
MUTABLE_FIELDS = {
    "nodeSelector": {"a": "c"},
    "tolerations": [],
    "affinity": {"nodeAffinity": {}},
    "schedulingGates": [{"name": "example.org/gate"}],
}
IMMUTABLE_FIELDS = {
    "serviceAccountName": "other",
    "imagePullSecrets": [{"name": "y"}],
    "volumes": [{"name": "w", "emptyDir": {}}],
    "containers": [{"name": "node"}],
}
MULTIKUEUE = "kueue.x-k8s.io/multikueue"
CHANGED = ResponseSummary(200)


def spec_with_patch(version, **pod):
    """Return the spec field with a patch of the pods, in which these fields are replaced."""
    spec = {**PATCH, **pod}
    if version < (2, 2):
        return {"podTemplateOverrides": [{"targetJobs": [{"name": "node"}], "spec": spec}]}
    jobs = [{"name": "node", "template": {"spec": {"template": {"spec": spec}}}}]
    runtime = {"template": {"spec": {"replicatedJobs": jobs}}}
    return {"runtimePatches": [{"manager": "example.org/a", "trainingRuntimeSpec": runtime}]}


def try_patch(client, namespace, name, change):
    response = client.request("PATCH", path_of("TrainJob", namespace, name), {"spec": change}, dryRun="All")
    return CHANGED if response.ok else ResponseSummary.from_response(response)


@pytest.fixture
def suspended_job(client, namespace, target):
    client.create(shell("sleep 60", name="suspended", suspend=True, **spec_with_patch(target.trainer)), namespace)
    return "suspended"


@pytest.fixture
def running_job(client, namespace, target):
    client.create(shell("sleep 60", name="running", **spec_with_patch(target.trainer)), namespace)
    client.wait_for("TrainJob", namespace, "running", lambda job: counters(job).get("node", {}).get("active"))
    return "running"


@pytest.mark.parametrize("state", ["suspended", "running"])
def test_spec_fields(client, namespace, target, state, request):
    """runtimeRef and managedBy are immutable. Since 2.2 trainer and deadline are too, but they can be removed."""
    name, new = request.getfixturevalue(f"{state}_job"), target.trainer >= (2, 2)
    fixed = "field is immutable"
    expected = {
        "runtimeRef": (
            {"runtimeRef": {"name": "torchtune-llama3.2-1b"}},
            invalid(f"spec.runtimeRef: Invalid value: {fixed if new else 'runtimeRef is immutable'}", name),
        ),
        "managedBy": (
            {"managedBy": MULTIKUEUE},
            invalid(
                f'spec.managedBy: Invalid value: "{MULTIKUEUE}": {fixed if new else "ManagedBy value is immutable"}',
                name,
            ),
        ),
        "managedBy to its default": ({"managedBy": None}, CHANGED),
        "image": (
            {"trainer": {"image": "x"}},
            invalid(f"spec.trainer: Invalid value: {fixed}", name) if new else CHANGED,
        ),
        "nodes": (
            {"trainer": {"numNodes": 2}},
            invalid(f"spec.trainer: Invalid value: {fixed}", name) if new else CHANGED,
        ),
        "no trainer": ({"trainer": None}, CHANGED),
        "suspend": ({"suspend": True}, CHANGED),
        "resume": ({"suspend": False}, CHANGED),
        "a first deadline": ({"activeDeadlineSeconds": 9}, CHANGED),
    }
    assert {title: try_patch(client, namespace, name, change) for title, (change, _) in expected.items()} == {
        title: response for title, (_, response) in expected.items()
    }


@pytest.mark.since("2.2")
def test_deadline(client, namespace):
    """Since 2.2 a deadline is immutable, but it can be set later and removed."""
    client.create(shell("true", suspend=True, activeDeadlineSeconds=60), namespace)
    text = "spec.activeDeadlineSeconds: Invalid value: 9: field is immutable"
    assert try_patch(client, namespace, "job", {"activeDeadlineSeconds": 9}) == invalid(text)
    assert try_patch(client, namespace, "job", {"activeDeadlineSeconds": None}) == CHANGED


def test_initializer(client, namespace, target):
    """Since 2.2 an initializer is immutable, but it can be removed."""
    source = {"dataset": {"storageUri": "hf://a/b"}}
    client.create(shell("true", runtime="torchtune-llama3.2-1b", suspend=True, initializer=source), namespace)
    expected = invalid("spec.initializer: Invalid value: field is immutable") if target.trainer >= (2, 2) else CHANGED
    assert try_patch(client, namespace, "job", {"initializer": {"dataset": {"storageUri": "hf://a/c"}}}) == expected
    assert try_patch(client, namespace, "job", {"initializer": {"model": {"storageUri": "hf://a/c"}}}) == expected
    assert try_patch(client, namespace, "job", {"initializer": None}) == CHANGED


def test_metadata(client, namespace, running_job):
    """Labels and annotations can change at any time; the name cannot."""
    path = path_of("TrainJob", namespace, running_job)
    change = {"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}}}
    assert client.request("PATCH", path, change, dryRun="All").code == 200
    renamed = client.request("PATCH", path, {"metadata": {"name": "z"}}, dryRun="All")
    assert (renamed.code, renamed.reason) == (400, "BadRequest")
    assert renamed.message == "the name of the object (z) does not match the name on the URL (running)"


@pytest.mark.parametrize("field", [*MUTABLE_FIELDS, *IMMUTABLE_FIELDS])
def test_patches_of_a_suspended_job(client, namespace, target, suspended_job, field):
    """Patches of a suspended job can change. Since 2.2 a patch can change placement, but no other field."""
    change = spec_with_patch(target.trainer, **{field: {**MUTABLE_FIELDS, **IMMUTABLE_FIELDS}[field]})
    value = '"other": ' if field == "serviceAccountName" else ""
    fixed = invalid(f"{POD}.{field}: Invalid value: {value}field is immutable", suspended_job)
    assert try_patch(client, namespace, suspended_job, change) == (
        fixed if field in IMMUTABLE_FIELDS and target.trainer >= (2, 2) else CHANGED
    )


def test_patches_on_resume(client, namespace, target, suspended_job):
    """Since 2.2 a patch can change in the request that resumes the job. Before, the job must stay suspended."""
    change = {**spec_with_patch(target.trainer, nodeSelector={"a": "c"}), "suspend": False}
    text = (
        "spec.podTemplateOverrides: Forbidden: PodTemplateOverrides can only be modified when the TrainJob is suspended"
    )
    assert try_patch(client, namespace, suspended_job, change) == (
        CHANGED if target.trainer >= (2, 2) else denied(text)
    )


def test_whole_patches_of_a_suspended_job(client, namespace, target, suspended_job):
    """While a job is suspended, whole patches can be added, renamed and removed."""
    field, value = next(iter(spec_with_patch(target.trainer).items()))
    other = {**value[0], "manager": "example.org/b"} if target.trainer >= (2, 2) else value[0]
    for change in ([*value, other], [other], [], None):
        assert try_patch(client, namespace, suspended_job, {field: change}) == CHANGED


def test_patches_of_a_running_job(client, namespace, target, running_job):
    """Patches of a running job cannot change, not even in the request that suspends it."""
    new = target.trainer >= (2, 2)
    field, name = ("runtimePatches", "RuntimePatches") if new else ("podTemplateOverrides", "PodTemplateOverrides")
    change = spec_with_patch(target.trainer, **MUTABLE_FIELDS)
    when = "suspended before or after the update" if new else "suspended"
    too_late = denied(f"spec.{field}: Forbidden: {name} can only be modified when the TrainJob is {when}")
    active = f"spec.{field}: Forbidden: {name} cannot be modified when the JobSet's ReplicatedJob node is still active"
    assert try_patch(client, namespace, running_job, change) == too_late
    assert try_patch(client, namespace, running_job, {field: None}) == too_late
    assert try_patch(client, namespace, running_job, {**change, "suspend": True}) == denied(active)
