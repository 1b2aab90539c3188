"""Every field of a pod template: on the trainer, as a patch, in a runtime of its own, or left out with a reason."""

from __future__ import annotations

import copy
import json

import pytest

from tests.unit.migrate.v1_jobs import CONTAINER, POD, every_field, pytorch_job
from trainjob.manifest import Dialect
from trainjob_migrate import FieldResult, Readiness, convert
from trainjob_migrate.field_records import format_path, get_value, iterate_leaves

PATCHED = {
    "nodeSelector",
    "tolerations",
    "affinity",
    "imagePullSecrets",
    "securityContext",
    "serviceAccountName",
    "volumes",
}
DROPPED = {"restartPolicy", "hostname", "subdomain"}
ON_THE_TRAINER = {"image", "command", "args", "env", "resources"}
ONE_MOUNT = [{"name": "data", "mountPath": "/data"}]
WORKER = "spec.pytorchReplicaSpecs.Worker.template."


def result_at(conversion, path):
    """Of what stands at or below a path of the Worker's template, if it is one."""
    fates = {line.fate for line in conversion.lines if line.path.startswith(WORKER + path)}
    assert len(fates) == 1
    return fates.pop()


def pod_template(conversion):
    """The pod template that the new objects have between them."""
    if conversion.runtime:
        template = conversion.runtime["spec"]["template"]
    else:
        template = conversion.train_job["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]
    return template["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]


@pytest.mark.parametrize("field", POD)
def test_a_pods_field(field):
    found = convert(pytorch_job(command=["torchrun", "t.py"], pod={field: copy.deepcopy(POD[field])}))
    if field in DROPPED:
        assert result_at(found, f"spec.{field}") is FieldResult.DROPPED
        assert found.readiness is Readiness.SIMPLE
        return
    assert pod_template(found)["spec"][field] == POD[field]
    patched = field in PATCHED
    assert result_at(found, f"spec.{field}") is (FieldResult.CONVERTED if patched else FieldResult.MOVED)
    assert found.readiness is (Readiness.STANDARD if patched else Readiness.COMPLEX)
    assert (found.runtime is None) == patched


@pytest.mark.parametrize("field", [field for field in CONTAINER if field not in ON_THE_TRAINER])
def test_a_containers_field(field):
    value = ONE_MOUNT if field == "volumeMounts" else copy.deepcopy(CONTAINER[field])
    found = convert(pytorch_job(command=["torchrun", "t.py"], **{field: value}))
    container = pod_template(found)["spec"]["containers"][0]
    assert container["name"] == "node"
    assert container[field] == (
        value[1:] if field == "ports" else value
    )  # the Training Operator's own port is not needed
    patched = field in ("volumeMounts", "securityContext")
    assert found.readiness is (Readiness.STANDARD if patched else Readiness.COMPLEX)


@pytest.mark.parametrize("dialect", [Dialect.V2_0, Dialect.V2_1])
@pytest.mark.parametrize("field", sorted(PATCHED))
def test_what_an_older_trainer_cant_patch_goes_into_a_runtime(field, dialect):
    found = convert(pytorch_job(command=["torchrun", "t.py"], pod={field: POD[field]}), dialect=dialect)
    assert "runtimePatches" not in found.train_job["spec"]
    assert pod_template(found)["spec"][field] == POD[field]
    assert result_at(found, f"spec.{field}") is FieldResult.MOVED


def test_a_volume_that_is_mounted_twice_needs_a_runtime():
    """A patch's mounts are a list by the volume's name (Trainer 2.3 ContainerPatch)."""
    pod = {"volumes": POD["volumes"][:1]}
    found = convert(pytorch_job(command=["torchrun", "t.py"], pod=pod, volumeMounts=CONTAINER["volumeMounts"]))
    assert pod_template(found)["spec"]["containers"][0]["volumeMounts"] == CONTAINER["volumeMounts"]
    assert found.runtime
    assert "runtimePatches" not in found.train_job["spec"]


def test_no_value_is_lost():
    """In a job with every field, what is converted or moved stands in the new objects, word for word."""
    found = convert(every_field())
    assert [line.path for line in found.blockers] == []
    text = json.dumps([found.train_job, found.runtime])
    kept = {line.path: line for line in found.lines if line.fate in (FieldResult.CONVERTED, FieldResult.MOVED)}
    elsewhere = (
        "spec.pytorchReplicaSpecs.Master",
        "apiVersion",
        "kind",
        "spec.runPolicy.managedBy",
        "spec.elasticPolicy",
    )
    for leaf in iterate_leaves(found.source):
        path = format_path(leaf)
        owner = next((line for line in kept if path.startswith(line)), None)
        value = get_value(found.source, leaf)
        changed = path.endswith(("restartPolicy", ".name", "replicas")) or path.startswith(elsewhere)
        if owner and not changed and path != "spec.nprocPerNode":
            assert json.dumps(value) in text, path


def test_what_both_replicas_have_in_another_order_is_the_same():
    job = pytorch_job(env=[{"name": "A", "value": "1"}, {"name": "B", "value": "2"}])
    container = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    container["env"].reverse()
    assert convert(job).blockers == ()


def job_with_differing_master(**master):
    job = pytorch_job(command=["python", "t.py"], env=[{"name": "ROLE", "value": "x"}])
    job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0].update(master)
    return job


def test_templates_that_differ_are_refused_field_by_field():
    job = job_with_differing_master(image="example.com/other:1", env=[{"name": "ROLE", "value": "y"}], tty=True)
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["nodeSelector"] = {"pool": "gpu"}
    found = convert(job)
    blockers = {line.path.removeprefix("spec.pytorchReplicaSpecs."): line.reason for line in found.blockers}
    assert {path: reason.split(",")[0] for path, reason in blockers.items()} == {
        "Master.template.spec.containers[0].image": "the Worker has another value",
        "Master.template.spec.containers[0].env[0].value": "the Worker has another value",
        "Master.template.spec.containers[0].tty": "the Worker has none",
        "Worker.template.spec.nodeSelector": "the Master has none",
    }
    assert (found.train_job, found.readiness) == (None, Readiness.COMPLEX)


def test_what_differs_without_a_consequence_is_the_workers():
    job = job_with_differing_master(
        ports=[{"containerPort": 23456, "name": "pytorchjob-port"}], imagePullPolicy="Always"
    )
    found = convert(job)
    assert found.blockers == ()
    dropped = [line.path for line in found.lines if ".Master." in line.path and line.fate is FieldResult.DROPPED]
    assert [path.rpartition(".")[2] for path in dropped] == ["ports", "imagePullPolicy"]


def test_more_variables_than_a_trainjob_takes():
    env = [{"name": f"V{number}", "value": str(number)} for number in range(125)]
    found = convert(pytorch_job(command=["python", "t.py"], env=env))
    assert pod_template(found)["spec"]["containers"][0]["env"] == env
    assert len(found.train_job["spec"]["trainer"]["env"]) == 5
    found = convert(pytorch_job(command=["torchrun", "t.py"], env=env))
    assert (found.runtime, len(found.train_job["spec"]["trainer"]["env"])) == (None, 126)


def test_the_later_of_two_variables_counts():
    env = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    found = convert(pytorch_job(command=["torchrun", "t.py"], env=env))
    assert found.train_job["spec"]["trainer"]["env"][0] == {"name": "A", "value": "2"}


def test_claims_on_devices_stay_with_the_pod():
    resources = {"claims": [{"name": "gpu"}], "limits": {"cpu": "1"}}
    pod = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]}
    found = convert(pytorch_job(command=["torchrun", "t.py"], resources=resources, pod=pod))
    assert pod_template(found)["spec"]["containers"][0]["resources"] == resources
    assert "resourcesPerNode" not in found.train_job["spec"]["trainer"]


REFUSED = {
    "a field nobody knows": ({"unheard": 1}, {}, "spec.unheard"),
    "a container's field nobody knows": ({}, {"unheard": {"a": 1}}, "spec.containers[0].unheard.a"),
    "a value of another kind": ({"hostNetwork": "yes"}, {}, "spec.hostNetwork"),
    "a number for a command": ({}, {"command": ["python", 1]}, "spec.containers[0].command[0]"),
    "a variable that is no text": ({}, {"env": [{"name": "A", "value": 1}]}, "spec.containers[0].env[0].name"),
    "containers for debugging": ({"ephemeralContainers": [{"name": "d"}]}, {}, "spec.ephemeralContainers"),
    "pods chosen by an old label": (
        {"affinity": {"podAffinity": {"x": [{"matchLabels": {"training.kubeflow.org/job-name": "mnist"}}]}}},
        {},
        "spec.affinity",
    ),
    "a variable from an old label": (
        {},
        {
            "env": [
                {"name": "I", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['training.kubeflow.org/x']"}}}
            ]
        },
        "spec.containers[0].env[0]",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    pod, container, path = REFUSED[name]
    found = convert(pytorch_job(workers=0, pod=pod, **container))
    template = "spec.pytorchReplicaSpecs.Master.template."
    assert found.blockers[0].path == template + path
    assert (found.train_job, found.runtime) == (None, None)


def test_a_container_must_train():
    job = pytorch_job(workers=0)
    job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]["name"] = "main"
    assert "called pytorch" in convert(job).blockers[0].reason


def test_a_pull_policy_that_is_the_default_needs_no_runtime():
    for image, policy in (("a/b", "Always"), ("r:5000/b:latest", "Always"), ("a/b:1", "IfNotPresent")):
        assert convert(pytorch_job(image=image, imagePullPolicy=policy)).runtime is None
    assert convert(pytorch_job(image="a/b:1", imagePullPolicy="Always")).runtime


def test_a_priority_class_of_the_gang_yields_to_the_pods():
    found = convert(every_field())
    assert pod_template(found)["spec"]["priorityClassName"] == POD["priorityClassName"]
    dropped = {line.path for line in found.lines if line.fate is FieldResult.DROPPED}
    assert "spec.runPolicy.schedulingPolicy.priorityClass" in dropped


def test_an_old_service_account_is_a_service_account():
    found = convert(pytorch_job(pod={"serviceAccount": "old"}))
    assert pod_template(found)["spec"]["serviceAccountName"] == "old"
    found = convert(pytorch_job(pod={"serviceAccount": "old", "serviceAccountName": "new"}))
    assert pod_template(found)["spec"]["serviceAccountName"] == "new"


def test_a_credential_in_the_open_is_told_and_not_shown():
    found = convert(pytorch_job(command=["torchrun", "t.py"], env=[{"name": "HF_TOKEN", "value": "s3cret"}]))
    assert [finding.topic for finding in found.findings].count("credential") == 1
    assert found.train_job["spec"]["trainer"]["env"][0]["value"] == "s3cret"
    assert "s3cret" not in json.dumps(found.to_dict())
