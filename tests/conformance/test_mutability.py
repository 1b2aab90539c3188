"""Which fields of a TrainJob may change after its creation: tried on a suspended and on a running one."""

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
    """The spec with a patch of the pods, some fields of which are changed."""
    spec = {**PATCH, **pod}
    if version < (2, 2):
        return {"podTemplateOverrides": [{"targetJobs": [{"name": "node"}], "spec": spec}]}
    jobs = [{"name": "node", "template": {"spec": {"template": {"spec": spec}}}}]
    runtime = {"template": {"spec": {"replicatedJobs": jobs}}}
    return {"runtimePatches": [{"manager": "example.org/a", "trainingRuntimeSpec": runtime}]}


def try_patch(client, namespace, name, change):
    answer = client.request("PATCH", path_of("TrainJob", namespace, name), {"spec": change}, dryRun="All")
    return CHANGED if answer.ok else ResponseSummary.from_response(answer)


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
def test_spec(client, namespace, target, state, request):
    """runtimeRef and managedBy never change; from 2.2 on trainer and deadline neither, but they can be taken away."""
    name, new = request.getfixturevalue(state), target.trainer >= (2, 2)
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
        title: answer for title, (_, answer) in expected.items()
    }


@pytest.mark.since("2.2")
def test_deadline(client, namespace):
    """From 2.2 on a deadline does not change, but it can be given later and taken away."""
    client.create(shell("true", suspend=True, activeDeadlineSeconds=60), namespace)
    text = "spec.activeDeadlineSeconds: Invalid value: 9: field is immutable"
    assert try_patch(client, namespace, "job", {"activeDeadlineSeconds": 9}) == invalid(text)
    assert try_patch(client, namespace, "job", {"activeDeadlineSeconds": None}) == CHANGED


def test_initializer(client, namespace, target):
    """From 2.2 on an initializer does not change, but it can be taken away."""
    source = {"dataset": {"storageUri": "hf://a/b"}}
    client.create(shell("true", runtime="torchtune-llama3.2-1b", suspend=True, initializer=source), namespace)
    expected = invalid("spec.initializer: Invalid value: field is immutable") if target.trainer >= (2, 2) else CHANGED
    assert try_patch(client, namespace, "job", {"initializer": {"dataset": {"storageUri": "hf://a/c"}}}) == expected
    assert try_patch(client, namespace, "job", {"initializer": {"model": {"storageUri": "hf://a/c"}}}) == expected
    assert try_patch(client, namespace, "job", {"initializer": None}) == CHANGED


def test_metadata(client, namespace, running_job):
    """Labels and annotations change at any time; a name does not."""
    path = path_of("TrainJob", namespace, running_job)
    change = {"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}}}
    assert client.request("PATCH", path, change, dryRun="All").code == 200
    renamed = client.request("PATCH", path, {"metadata": {"name": "z"}}, dryRun="All")
    assert (renamed.code, renamed.reason) == (400, "BadRequest")
    assert renamed.message == "the name of the object (z) does not match the name on the URL (running)"


@pytest.mark.parametrize("field", [*MUTABLE_FIELDS, *IMMUTABLE_FIELDS])
def test_patches_of_a_suspended_job(client, namespace, target, suspended_job, field):
    """While suspended, patches change; from 2.2 on inside of one only where pods go, not what they are."""
    change = spec_with_patch(target.trainer, **{field: {**MUTABLE_FIELDS, **IMMUTABLE_FIELDS}[field]})
    value = '"other": ' if field == "serviceAccountName" else ""
    fixed = invalid(f"{POD}.{field}: Invalid value: {value}field is immutable", suspended_job)
    assert try_patch(client, namespace, suspended_job, change) == (
        fixed if field in IMMUTABLE_FIELDS and target.trainer >= (2, 2) else CHANGED
    )


def test_patches_on_resume(client, namespace, target, suspended_job):
    """A patch may come together with the resume from 2.2 on; before, the job must stay suspended."""
    change = {**spec_with_patch(target.trainer, nodeSelector={"a": "c"}), "suspend": False}
    text = (
        "spec.podTemplateOverrides: Forbidden: PodTemplateOverrides can only be modified when the TrainJob is suspended"
    )
    assert try_patch(client, namespace, suspended_job, change) == (
        CHANGED if target.trainer >= (2, 2) else denied(text)
    )


def test_patches_come_and_go(client, namespace, target, suspended_job):
    """While suspended, whole patches may be added, renamed and removed."""
    field, value = next(iter(spec_with_patch(target.trainer).items()))
    other = {**value[0], "manager": "example.org/b"} if target.trainer >= (2, 2) else value[0]
    for change in ([*value, other], [other], [], None):
        assert try_patch(client, namespace, suspended_job, {field: change}) == CHANGED


def test_patches_of_a_running_job(client, namespace, target, running_job):
    """While it runs, patches do not change; suspending it in the same breath comes too early."""
    new = target.trainer >= (2, 2)
    field, name = ("runtimePatches", "RuntimePatches") if new else ("podTemplateOverrides", "PodTemplateOverrides")
    change = spec_with_patch(target.trainer, **MUTABLE_FIELDS)
    when = "suspended before or after the update" if new else "suspended"
    too_late = denied(f"spec.{field}: Forbidden: {name} can only be modified when the TrainJob is {when}")
    active = f"spec.{field}: Forbidden: {name} cannot be modified when the JobSet's ReplicatedJob node is still active"
    assert try_patch(client, namespace, running_job, change) == too_late
    assert try_patch(client, namespace, running_job, {field: None}) == too_late
    assert try_patch(client, namespace, running_job, {**change, "suspend": True}) == denied(active)
