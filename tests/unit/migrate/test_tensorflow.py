"""Tests of TFJobs: Workers alone become the nodes of a TrainJob; other roles are refused."""

from __future__ import annotations

import json

import pytest

from tests.unit.migrate.test_hosts import FINAL_NAME, expand
from tests.unit.migrate.test_pod_template import pod_template
from trainjob import InvalidSpec
from trainjob.manifest import Dialect
from trainjob_migrate import convert


def tensorflow_job(workers=2, *, version="kubeflow.org/v1", roles=(), pod=None, spec=None, **container):
    training = {"name": "tensorflow", "image": "example.com/tf:1", "command": ["python", "t.py"], **container}
    replica = {"restartPolicy": "OnFailure", "template": {"spec": {**(pod or {}), "containers": [training]}}}
    specs = {"Worker": {"replicas": workers, **replica}, **{role: {"replicas": 1, **replica} for role in roles}}
    metadata = {"name": "mirrored", "namespace": "team"}
    return {
        "apiVersion": version,
        "kind": "TFJob",
        "metadata": metadata,
        "spec": {"tfReplicaSpecs": specs, **(spec or {})},
    }


@pytest.mark.parametrize("dialect", Dialect)
def test_workers_are_nodes_with_their_cluster_in_tf_config(dialect):
    found = convert(tensorflow_job(3), dialect=dialect)
    assert found.blockers == ()
    assert found.runtime["spec"]["mlPolicy"] == {"numNodes": 1}
    trainer = found.train_job["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["command"]) == (3, ["python", "t.py"])
    index = next(one for one in trainer["env"] if one["name"] == "TASK_INDEX")
    assert "job-completion-index" in index["valueFrom"]["fieldRef"]["fieldPath"]
    variables = expand(trainer)[1]
    assert json.loads(variables["TF_CONFIG"].replace("$(TASK_INDEX)", "1")) == {
        "cluster": {"worker": [f"{FINAL_NAME}-node-0-{rank}.{FINAL_NAME}:29500" for rank in range(3)]},
        "task": {"type": "worker", "index": 1},
        "environment": "cloud",
    }
    assert list(variables).index("JOBSET_NAME") == 0
    assert "TF_CONFIG" in next(one.what for one in found.findings if one.topic == "environment")


def test_one_worker_gets_no_tf_config():
    found = convert(tensorflow_job(1))
    assert found.train_job["spec"]["trainer"]["env"] == [{"name": "PYTHONUNBUFFERED", "value": "1"}]


def test_an_own_tf_config_is_replaced_as_by_the_operator():
    trainer = convert(tensorflow_job(env=[{"name": "TF_CONFIG", "value": "{}"}])).train_job["spec"]["trainer"]
    assert [one["value"][:12] for one in trainer["env"] if one["name"] == "TF_CONFIG"] == ['{"cluster": ']


@pytest.mark.parametrize(("roles", "shown"), [(("PS",), "PS"), (("Chief", "Evaluator"), "Chief, Evaluator")])
def test_other_roles_are_refused_by_their_names(roles, shown):
    [blocker] = convert(tensorflow_job(roles=roles)).blockers
    assert blocker.path == "spec"
    assert f"no runtime for the roles {shown} of TensorFlow" in blocker.reason


def test_dynamic_workers_are_refused():
    [blocker] = convert(tensorflow_job(spec={"enableDynamicWorker": True})).blockers
    assert blocker.path == "spec.enableDynamicWorker"
    assert convert(tensorflow_job(spec={"enableDynamicWorker": False, "successPolicy": "AllWorkers"})).blockers == ()


def test_the_port_of_the_operator_is_dropped():
    ports = [{"name": "tfjob-port", "containerPort": 2222}, {"name": "board", "containerPort": 6006}]
    found = convert(tensorflow_job(ports=ports))
    assert pod_template(found)["spec"]["containers"][0]["ports"] == ports[1:]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("MPIJob", ["kubeflow.org/v2beta1", "spec.mpiReplicaSpecs", "slotsPerWorker", "cleanPodPolicy"]),
        ("PyTorchJob", ["spec.pytorchReplicaSpecs"]),
    ],
)
@pytest.mark.parametrize("version", ["kubeflow.org/v1alpha1", "kubeflow.org/v1alpha2"])
def test_older_versions_are_refused_with_what_to_change(kind, words, version):
    with pytest.raises(InvalidSpec) as raised:
        convert({**tensorflow_job(version=version), "kind": kind})
    assert [word for word in words if word not in str(raised.value)] == []


@pytest.mark.parametrize("version", ["kubeflow.org/v1alpha2", "kubeflow.org/v1beta2"])
def test_workers_of_an_older_version_are_refused_with_what_to_change(version):
    [blocker] = convert(tensorflow_job(version=version)).blockers
    assert "a TFJob must have kubeflow.org/v1" in blocker.reason
    assert "spec.tfReplicaSpecs" in blocker.reason


@pytest.mark.parametrize("spec", [{}, {"tfReplicaSpecs": {}}, {"tfReplicaSpecs": []}, {"replicaSpecs": {"Worker": {}}}])
def test_a_job_without_workers_is_refused(spec):
    [blocker] = convert({**tensorflow_job(), "spec": spec}).blockers
    assert "must have Workers in spec.tfReplicaSpecs" in blocker.reason
