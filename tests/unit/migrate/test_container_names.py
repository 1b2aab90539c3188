"""Tests of references to the training container, which is called `node` in a TrainJob."""

from __future__ import annotations

from tests.unit.migrate.test_pod_template import pod_template
from tests.unit.migrate.v1_jobs import pytorch_job
from trainjob_migrate import convert

SOURCE = {"resourceFieldRef": {"containerName": "pytorch", "resource": "limits.cpu"}}
NEW_SOURCE = {"resourceFieldRef": {"containerName": "node", "resource": "limits.cpu"}}


def test_a_variable_with_resources_of_the_training_container():
    found = convert(pytorch_job(command=["torchrun", "t.py"], env=[{"name": "CPUS", "valueFrom": SOURCE}]))
    assert found.train_job["spec"]["trainer"]["env"][0] == {"name": "CPUS", "valueFrom": NEW_SOURCE}


def test_a_volume_and_an_init_container_with_its_resources():
    pod = {
        "volumes": [{"name": "info", "downwardAPI": {"items": [{"path": "cpus", **SOURCE}]}}],
        "initContainers": [{"name": "init", "image": "b:1", "env": [{"name": "CPUS", "valueFrom": SOURCE}]}],
    }
    spec = pod_template(convert(pytorch_job(command=["torchrun", "t.py"], pod=pod)))["spec"]
    assert spec["volumes"][0]["downwardAPI"]["items"] == [{"path": "cpus", **NEW_SOURCE}]
    assert spec["initContainers"][0]["env"][0]["valueFrom"] == NEW_SOURCE


def test_an_init_container_with_its_new_name_is_refused():
    pod = {"initContainers": [{"name": "node", "image": "b:1"}]}
    [blocker] = convert(pytorch_job(command=["torchrun", "t.py"], pod=pod)).blockers
    assert blocker.path.endswith("initContainers[0].name")
