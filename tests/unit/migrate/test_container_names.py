"""Tests of references to the training container, which is called `node` in a TrainJob."""

from __future__ import annotations

import pytest

from tests.unit.migrate.test_pod_template import pod_template
from tests.unit.migrate.v1_jobs import pytorch_job
from trainjob_migrate import convert

SOURCE = {"resourceFieldRef": {"containerName": "pytorch", "resource": "limits.cpu"}}
NEW_SOURCE = {"resourceFieldRef": {"containerName": "node", "resource": "limits.cpu"}}


def finding_topics(conversion):
    return [finding.topic for finding in conversion.findings]


def test_a_variable_with_resources_of_the_training_container():
    found = convert(pytorch_job(command=["torchrun", "t.py"], env=[{"name": "CPUS", "valueFrom": SOURCE}]))
    assert found.train_job["spec"]["trainer"]["env"][0] == {"name": "CPUS", "valueFrom": NEW_SOURCE}
    assert "container-name" in finding_topics(found)


def test_a_volume_and_an_init_container_with_its_resources():
    pod = {
        "volumes": [{"name": "info", "downwardAPI": {"items": [{"path": "cpus", **SOURCE}]}}],
        "initContainers": [{"name": "init", "image": "b:1", "env": [{"name": "CPUS", "valueFrom": SOURCE}]}],
    }
    spec = pod_template(convert(pytorch_job(command=["torchrun", "t.py"], pod=pod)))["spec"]
    assert spec["volumes"][0]["downwardAPI"]["items"] == [{"path": "cpus", **NEW_SOURCE}]
    assert spec["initContainers"][0]["env"][0]["valueFrom"] == NEW_SOURCE


def with_annotation(key, value):
    job = pytorch_job(command=["torchrun", "t.py"])
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        replica["template"]["metadata"] = {"annotations": {key: value}}
    return job


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("kubectl.kubernetes.io/default-container", "pytorch"), ("kubectl.kubernetes.io/default-container", "node")),
        (
            ("container.apparmor.security.beta.kubernetes.io/pytorch", "unconfined"),
            ("container.apparmor.security.beta.kubernetes.io/node", "unconfined"),
        ),
        (("example.com/container-names", "proxy, pytorch"), ("example.com/container-names", "proxy, node")),
    ],
)
def test_annotations_with_its_name(given, expected):
    found = convert(with_annotation(*given))
    assert pod_template(found)["metadata"]["annotations"] == dict([expected])
    assert finding_topics(found).count("container-name") == 1


@pytest.mark.parametrize("given", [("team/framework", "pytorch"), ("a/container-names", "pytorch-x"), ("pytorch", "1")])
def test_other_annotations_stay(given):
    found = convert(with_annotation(*given))
    assert pod_template(found)["metadata"]["annotations"] == dict([given])
    assert "container-name" not in finding_topics(found)


def test_an_init_container_with_its_new_name_is_refused():
    pod = {"initContainers": [{"name": "node", "image": "b:1"}]}
    [blocker] = convert(pytorch_job(command=["torchrun", "t.py"], pod=pod)).blockers
    assert blocker.path.endswith("initContainers[0].name")


@pytest.mark.parametrize("name", ["MAIN_CONTAINER_NAME", "CONTAINER", "log_container"])
def test_a_variable_with_its_name_gets_the_new_name(name):
    found = convert(pytorch_job(command=["torchrun", "t.py"], env=[{"name": name, "value": "pytorch"}]))
    assert found.train_job["spec"]["trainer"]["env"][0] == {"name": name, "value": "node"}
    [finding] = [one for one in found.findings if one.topic == "container-name"]
    assert f"variable {name}" in finding.what


@pytest.mark.parametrize(("name", "value"), [("FRAMEWORK", "pytorch"), ("CONTAINER", "pytorch-2"), ("CONTAINER", "a")])
def test_other_variables_stay(name, value):
    found = convert(pytorch_job(command=["torchrun", "t.py"], env=[{"name": name, "value": value}]))
    assert found.train_job["spec"]["trainer"]["env"][0] == {"name": name, "value": value}
    assert "container-name" not in finding_topics(found)
