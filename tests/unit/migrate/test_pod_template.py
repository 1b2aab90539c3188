"""Tests of every field of a pod template: in the trainer, a patch, a generated runtime, or dropped."""

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
    """Return the common result of the fields at or below a path of the Worker's template."""
    results = {record.result for record in conversion.fields if record.path.startswith(WORKER + path)}
    assert len(results) == 1
    return results.pop()


def pod_template(conversion):
    """Return the pod template of the generated runtime or of the patch."""
    if conversion.runtime:
        template = conversion.runtime["spec"]["template"]
    else:
        template = conversion.train_job["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]
    return template["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]


@pytest.mark.parametrize("field", POD)
def test_each_field_of_a_pod(field):
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
def test_each_field_of_a_container(field):
    value = ONE_MOUNT if field == "volumeMounts" else copy.deepcopy(CONTAINER[field])
    pod = {"volumes": POD["volumes"]} if field.startswith("volume") else {}
    found = convert(pytorch_job(command=["torchrun", "t.py"], pod=pod, **{field: value}))
    container = pod_template(found)["spec"]["containers"][0]
    assert container["name"] == "node"
    assert container[field] == (
        value[1:] if field == "ports" else value
    )  # the Training Operator's own port is not needed
    patched = field in ("volumeMounts", "securityContext")
    assert found.readiness is (Readiness.STANDARD if patched else Readiness.COMPLEX)


@pytest.mark.parametrize("dialect", [Dialect.V2_0, Dialect.V2_1])
@pytest.mark.parametrize("field", sorted(PATCHED))
def test_older_trainers_get_a_runtime_instead_of_patches(field, dialect):
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
    """The new objects have the values of all converted and moved fields of a job with every field."""
    found = convert(every_field())
    assert [record.path for record in found.blockers] == []
    text = json.dumps([found.train_job, found.runtime])
    kept = {
        record.path: record for record in found.fields if record.result in (FieldResult.CONVERTED, FieldResult.MOVED)
    }
    elsewhere = (
        "spec.pytorchReplicaSpecs.Master",
        "apiVersion",
        "kind",
        "spec.runPolicy.managedBy",
        "spec.elasticPolicy",
    )
    for leaf in iterate_leaves(found.source):
        path = format_path(leaf)
        owner = next((prefix for prefix in kept if path.startswith(prefix)), None)
        value = get_value(found.source, leaf)
        changed = path.endswith(("restartPolicy", ".name", "replicas")) or path.startswith(elsewhere)
        if owner and not changed and path != "spec.nprocPerNode":
            assert json.dumps(value) in text, path


def test_another_order_of_variables_is_no_difference():
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
    blockers = {record.path.removeprefix("spec.pytorchReplicaSpecs."): record.reason for record in found.blockers}
    assert {path: reason.split(",")[0] for path, reason in blockers.items()} == {
        "Master.template.spec.containers[0].image": "the Worker has another value",
        "Master.template.spec.containers[0].env[0].value": "the Worker has another value of ROLE",
        "Master.template.spec.containers[0].tty": "the Worker has none",
        "Worker.template.spec.nodeSelector": "the Master has none",
    }
    assert (found.train_job, found.readiness) == (None, Readiness.COMPLEX)


ONLY_IN_THE_WORKER = {
    "args": ["--worker"],
    "env": [{"name": "A", "value": "1"}],
    "resources": {"limits": {"cpu": 1}},
    "securityContext": {"runAsUser": 1},
    "workingDir": "/worker",
}


@pytest.mark.parametrize("field", ONLY_IN_THE_WORKER)
def test_a_field_that_only_the_worker_has_is_refused(field):
    job = pytorch_job(command=["python", "t.py"])
    container = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container[field] = ONLY_IN_THE_WORKER[field]
    found = convert(job)
    [blocker] = found.blockers
    assert blocker.path.startswith(f"spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].{field}")
    assert blocker.reason.startswith("the Master has no")
    assert found.train_job is None


IGNORED = ("creationTimestamp", "restartPolicy", "ports", "imagePullPolicy", "terminationMessagePath")
TEMPLATE_LEAVES = [
    leaf
    for leaf in iterate_leaves(every_field()["spec"]["pytorchReplicaSpecs"]["Worker"]["template"])
    if not set(leaf) & set(IGNORED) and "labels" not in leaf  # see test_labels_of_the_role_are_those_of_the_worker
]


@pytest.mark.parametrize("role", ["Master", "Worker"])
@pytest.mark.parametrize("leaf", TEMPLATE_LEAVES, ids=lambda leaf: ".".join(map(str, leaf)))
def test_a_value_that_one_template_lacks_is_refused(leaf, role):
    job = every_field()
    parent = get_value(job["spec"]["pytorchReplicaSpecs"][role]["template"], leaf[:-1])
    del parent[leaf[-1]]
    found = convert(job)
    assert found.blockers
    assert found.train_job is None


@pytest.mark.parametrize("env", ["A=1", {"A": "1"}, [None], ["A"], 1])
@pytest.mark.parametrize("role", ["Master", "Worker"])
def test_variables_of_the_wrong_type_in_one_template_are_refused(env, role):
    job = pytorch_job(command=["python", "t.py"])
    job["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"]["containers"][0]["env"] = env
    assert [".env" in blocker.path for blocker in convert(job).blockers] == [True]


@pytest.mark.parametrize("name", [["a"], {"a": "b"}, None, 1])
def test_a_volume_whose_name_is_no_string_is_refused(name):
    mounts = [{"name": name, "mountPath": "/a"}]
    pod = {"volumes": [{"name": name, "emptyDir": {}}]}
    assert convert(pytorch_job(command=["torchrun", "t.py"], volumeMounts=mounts, pod=pod)).blockers


def test_the_command_of_the_worker_alone_is_refused():
    job = pytorch_job()
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["command"] = ["python", "w.py"]
    [blocker] = convert(job).blockers
    assert blocker.path == "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].command"


def test_ports_and_pull_policies_that_only_the_worker_has_are_used():
    job = pytorch_job(command=["torchrun", "t.py"])
    container = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container |= {"ports": [{"containerPort": 9400, "name": "metrics"}], "imagePullPolicy": "Always"}
    found = convert(job)
    assert found.blockers == ()
    node = pod_template(found)["spec"]["containers"][0]
    assert (node["ports"], node["imagePullPolicy"]) == (container["ports"], "Always")
    assert [one.path for one in found.fields if one.result is FieldResult.DROPPED] == []


def test_a_missing_element_of_a_list_is_named():
    job = job_with_differing_master(env=[{"name": "LR", "value": "1"}])
    reasons = [record.reason.split(",")[0] for record in convert(job).blockers]
    assert reasons == ["the Worker has no LR", "the Master has no ROLE"]


OWN_ENV = [{"name": "RANK", "value": "0"}, {"name": "MASTER_ADDR", "value": "localhost"}]


@pytest.mark.parametrize("worker", [None, [], [{"name": "MASTER_ADDR", "value": "mnist-master-0"}]])
def test_variables_that_the_operator_sets_are_no_difference(worker):
    job = pytorch_job(command=["python", "t.py"])
    replicas = job["spec"]["pytorchReplicaSpecs"]
    replicas["Master"]["template"]["spec"]["containers"][0]["env"] = OWN_ENV
    if worker is not None:
        replicas["Worker"]["template"]["spec"]["containers"][0]["env"] = worker
    found = convert(job)
    assert found.blockers == ()
    dropped = [record for record in found.fields if ".Master." in record.path and record.result is FieldResult.DROPPED]
    assert [record.path.rpartition(".")[2] for record in dropped if "[0]" in record.path.partition(".env")[2]] != []
    assert {record.reason.partition(";")[0] for record in dropped} == {"the Training Operator sets it itself"}


def test_the_same_variables_of_a_sidecar_are_a_difference():
    job = pytorch_job(command=["python", "t.py"])
    for role, value in (("Master", "0"), ("Worker", "1")):
        sidecar = {"name": "s", "image": "s:1", "env": [{"name": "RANK", "value": value}]}
        job["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"]["containers"].append(sidecar)
    [blocker] = convert(job).blockers
    assert blocker.reason.startswith("the Worker has another value of RANK")


def test_irrelevant_differences_use_the_values_of_the_worker():
    job = job_with_differing_master(
        ports=[{"containerPort": 23456, "name": "pytorchjob-port"}], imagePullPolicy="Always"
    )
    found = convert(job)
    assert found.blockers == ()
    dropped = [
        record.path for record in found.fields if ".Master." in record.path and record.result is FieldResult.DROPPED
    ]
    assert [path.rpartition(".")[2] for path in dropped] == ["ports", "imagePullPolicy"]


def test_ports_beside_the_rendezvous_are_moved_with_the_new_host():
    ports = [{"containerPort": 23456, "name": "pytorchjob-port"}, {"containerPort": 5001, "name": "manager"}]
    found = convert(pytorch_job(command=["torchrun", "t.py"], ports=ports))
    container = "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0]"
    rendezvous, other = (one for one in found.fields if one.path.startswith(f"{container}.ports"))
    assert (rendezvous.result, other.result) == (FieldResult.DROPPED, FieldResult.MOVED)
    assert other.reason.startswith("pods reach it at the hosts of the TrainJob")


def test_too_many_variables_move_to_a_runtime():
    env = [{"name": f"V{number}", "value": str(number)} for number in range(125)]
    found = convert(pytorch_job(command=["python", "t.py"], env=env))
    assert pod_template(found)["spec"]["containers"][0]["env"] == env
    assert len(found.train_job["spec"]["trainer"]["env"]) == 6
    found = convert(pytorch_job(command=["torchrun", "t.py"], env=env))
    assert (found.runtime, len(found.train_job["spec"]["trainer"]["env"])) == (None, 126)


def test_the_later_of_two_equal_variables_applies():
    env = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    found = convert(pytorch_job(command=["torchrun", "t.py"], env=env))
    assert found.train_job["spec"]["trainer"]["env"][0] == {"name": "A", "value": "2"}


def test_resource_claims_stay_in_the_pod_template():
    resources = {"claims": [{"name": "gpu"}], "limits": {"cpu": "1"}}
    pod = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]}
    found = convert(pytorch_job(command=["torchrun", "t.py"], resources=resources, pod=pod))
    assert pod_template(found)["spec"]["containers"][0]["resources"] == resources
    assert "resourcesPerNode" not in found.train_job["spec"]["trainer"]


REFUSED = {
    "an unknown field": ({"unheard": 1}, {}, "spec.unheard"),
    "an unknown field of a container": ({}, {"unheard": {"a": 1}}, "spec.containers[0].unheard.a"),
    "a value of another kind": ({"hostNetwork": "yes"}, {}, "spec.hostNetwork"),
    "a number for a command": ({}, {"command": ["python", 1]}, "spec.containers[0].command[1]"),
    "a variable that is not a string": ({}, {"env": [{"name": "A", "value": 1}]}, "spec.containers[0].env[0].value"),
    "containers for debugging": ({"ephemeralContainers": [{"name": "d"}]}, {}, "spec.ephemeralContainers"),
    "pods selected by an old label": (
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
def test_invalid_fields_are_refused(name):
    pod, container, path = REFUSED[name]
    found = convert(pytorch_job(workers=0, pod=pod, **container))
    template = "spec.pytorchReplicaSpecs.Master.template."
    assert found.blockers[0].path == template + path
    assert (found.train_job, found.runtime) == (None, None)


def test_a_job_needs_a_training_container():
    job = pytorch_job(workers=0)
    job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]["name"] = "main"
    assert "name pytorch" in convert(job).blockers[0].reason


def test_a_pull_policy_that_is_the_default_needs_no_runtime():
    for image, policy in (("a/b", "Always"), ("r:5000/b:latest", "Always"), ("a/b:1", "IfNotPresent")):
        assert convert(pytorch_job(image=image, imagePullPolicy=policy)).runtime is None
    assert convert(pytorch_job(image="a/b:1", imagePullPolicy="Always")).runtime


def test_the_priority_class_of_the_pods_takes_precedence():
    found = convert(every_field())
    assert pod_template(found)["spec"]["priorityClassName"] == POD["priorityClassName"]
    dropped = {record.path for record in found.fields if record.result is FieldResult.DROPPED}
    assert "spec.runPolicy.schedulingPolicy.priorityClass" in dropped


def test_the_deprecated_service_account_field_is_converted():
    found = convert(pytorch_job(pod={"serviceAccount": "old"}))
    assert pod_template(found)["spec"]["serviceAccountName"] == "old"
    found = convert(pytorch_job(pod={"serviceAccount": "old", "serviceAccountName": "new"}))
    assert pod_template(found)["spec"]["serviceAccountName"] == "new"


def test_a_plain_text_credential_is_a_finding_and_is_not_shown():
    found = convert(pytorch_job(command=["torchrun", "t.py"], env=[{"name": "HF_TOKEN", "value": "s3cret"}]))
    assert [finding.topic for finding in found.findings].count("credential") == 1
    assert found.train_job["spec"]["trainer"]["env"][0]["value"] == "s3cret"
    assert "s3cret" not in json.dumps(found.to_dict())


@pytest.mark.parametrize(
    ("metadata", "path"),
    [({"app": "mnist"}, "app"), ({"sidecar.istio.io/inject": "false"}, '["sidecar.istio.io/inject"]')],
)
def test_metadata_that_no_pod_has_is_refused(metadata, path):
    """kubectl refuses it, too; it was probably meant as a label or annotation."""
    job = pytorch_job()
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        replica["template"]["metadata"] = metadata
    blockers = convert(job).blockers
    assert [blocker.path.endswith(path) for blocker in blockers] == [True] * len(blockers) != []


@pytest.mark.parametrize("metadata", [{"name": "worker"}, {"creationTimestamp": None}, {"namespace": "team"}])
def test_other_metadata_of_pods_is_dropped(metadata):
    job = pytorch_job()
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        replica["template"]["metadata"] = metadata
    assert convert(job).blockers == ()
