"""Tests of XGBoostJobs and JAXJobs: equal nodes, which find each other by variables."""

from __future__ import annotations

import json

import pytest

from trainjob.manifest import Dialect
from trainjob_migrate import FieldResult, Readiness, convert

RANK = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
JOBSET_NAME = {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/jobset-name']"}}
CONTAINERS = {"XGBoostJob": "xgboost", "JAXJob": "jax"}
SPECS = {"XGBoostJob": "xgbReplicaSpecs", "JAXJob": "jaxReplicaSpecs"}


def make_job(kind, replicas, *, name="trees", **container):
    """Return a job of the kind.

    `replicas` are roles and the fields of each besides the template.
    """
    training = {"name": CONTAINERS[kind], "image": "trees:1", **container}
    specs = {role: {**fields, "template": {"spec": {"containers": [training]}}} for role, fields in replicas.items()}
    return {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": {"name": name}, "spec": {SPECS[kind]: specs}}


def xgboost_job(workers=2, restarts="OnFailure", **container):
    replicas = {"Master": {"replicas": 1, "restartPolicy": restarts}}
    if workers:
        replicas["Worker"] = {"replicas": workers, "restartPolicy": restarts}
    return make_job("XGBoostJob", replicas, **container)


def jax_job(workers=2, restarts="OnFailure", **container):
    return make_job("JAXJob", {"Worker": {"replicas": workers, "restartPolicy": restarts}}, **container)


def with_container_name(job, old, new):
    """Return the same job with another name of its container."""
    return json.loads(json.dumps(job).replace(f'"name": "{old}"', f'"name": "{new}"'))


def variables(conversion):
    return {
        one["name"]: one.get("value", one.get("valueFrom")) for one in conversion.train_job["spec"]["trainer"]["env"]
    }


def test_an_xgboost_job_keeps_its_variables():
    found = convert(xgboost_job())
    assert found.train_job["spec"]["trainer"]["numNodes"] == 3
    assert variables(found) == {
        "PYTHONUNBUFFERED": "1",
        "JOBSET_NAME": JOBSET_NAME,
        "MASTER_PORT": "29500",
        "MASTER_ADDR": "$(JOBSET_NAME)-node-0-0.$(JOBSET_NAME)",
        "WORLD_SIZE": "3",
        "RANK": RANK,
        "WORKER_PORT": "29500",
        "WORKER_ADDRS": "$(JOBSET_NAME)-node-0-1.$(JOBSET_NAME),$(JOBSET_NAME)-node-0-2.$(JOBSET_NAME)",
    }
    assert found.readiness is Readiness.SIMPLE
    assert [finding.topic for finding in found.findings].count("environment") == 1


def test_a_single_master_has_no_worker_variables():
    assert not {"WORKER_PORT", "WORKER_ADDRS"} & set(variables(convert(xgboost_job(workers=0))))


def test_a_jax_job_keeps_its_variables():
    assert variables(convert(jax_job())) == {
        "PYTHONUNBUFFERED": "1",
        "JOBSET_NAME": JOBSET_NAME,
        "COORDINATOR_PORT": "29500",
        "COORDINATOR_ADDRESS": "$(JOBSET_NAME)-node-0-0.$(JOBSET_NAME)",
        "NUM_PROCESSES": "2",
        "PROCESS_ID": RANK,
    }


@pytest.mark.parametrize(
    ("make", "name"),
    [(xgboost_job, "RANK"), (xgboost_job, "DMLC_NUM_WORKER"), (jax_job, "PROCESS_ID"), (jax_job, "PYTHONUNBUFFERED")],
)
def test_the_jobs_values_of_operator_variables_are_dropped(make, name):
    """The variables of the Training Operator take precedence, and the Trainer rejects its reserved variables."""
    given = [{"name": name, "value": "7"}, {"name": "LR", "value": "0.1"}]
    found = convert(make(env=given))
    env = variables(found)
    assert (env.get(name) == "7", env["LR"]) == (False, "0.1")
    assert any(record.result is FieldResult.DROPPED and record.path.endswith("env[0]") for record in found.fields)


@pytest.mark.parametrize("make", [xgboost_job, jax_job])
def test_before_trainer_2_2_the_generated_runtime_has_no_ml_policy(make):
    found = convert(make(), dialect=Dialect.V2_1)
    assert found.runtime["spec"]["mlPolicy"] == {"numNodes": 1}
    assert found.train_job["spec"]["runtimeRef"]["kind"] == "TrainingRuntime"
    assert found.readiness is Readiness.COMPLEX


@pytest.mark.parametrize("make", [xgboost_job, jax_job])
def test_by_default_the_first_failure_ends_the_job(make):
    found = convert(make(restarts=None))
    job = found.runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert (job["backoffLimit"], job["template"]["spec"]["restartPolicy"]) == (0, "Never")
    assert found.readiness is Readiness.COMPLEX


def test_the_strictest_of_two_restart_policies_applies():
    job = xgboost_job()
    job["spec"]["xgbReplicaSpecs"]["Master"]["restartPolicy"] = "Never"
    job["spec"]["xgbReplicaSpecs"]["Worker"]["restartPolicy"] = "ExitCode"
    found = convert(job)
    pod = found.runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    [record] = [one for one in found.fields if one.path == "spec.xgbReplicaSpecs.Worker.restartPolicy"]
    assert record.result is FieldResult.DROPPED
    assert "restarts" in [finding.topic for finding in found.findings]


def test_an_unknown_restart_policy_is_refused():
    job = xgboost_job()
    job["spec"]["xgbReplicaSpecs"]["Worker"]["restartPolicy"] = "Sometimes"
    [record] = convert(job).blockers
    assert record.path == "spec.xgbReplicaSpecs.Worker.restartPolicy"


def test_a_difference_between_master_and_workers_is_refused():
    job = xgboost_job()
    job["spec"]["xgbReplicaSpecs"]["Master"]["template"] = {
        "spec": {"containers": [{"name": "xgboost", "image": "trees:1", "args": ["--model_path=/tmp/m"]}]}
    }
    [record] = convert(job).blockers
    assert record.path == "spec.xgbReplicaSpecs.Master.template.spec.containers[0].args"


@pytest.mark.parametrize(
    ("job", "path"),
    [
        (make_job("XGBoostJob", {"Worker": {}}), "spec.xgbReplicaSpecs"),
        (make_job("XGBoostJob", {"Master": {"replicas": 2}}), "spec.xgbReplicaSpecs.Master.replicas"),
        (make_job("JAXJob", {"Master": {}}), "spec.jaxReplicaSpecs"),
        (jax_job(image=""), "spec.jaxReplicaSpecs.Worker.template.spec.containers[0].image"),
        (with_container_name(jax_job(), "jax", "trainer"), "spec.jaxReplicaSpecs.Worker.template.spec.containers"),
    ],
)
def test_jobs_that_the_training_operator_rejects_are_refused(job, path):
    assert path in [record.path for record in convert(job).blockers]


def test_host_names_are_replaced_by_those_of_the_nodes():
    found = convert(
        xgboost_job(args=["--tracker=trees-master-0", "--peers=trees-worker-0,trees-worker-1", "my-trees-worker-0"])
    )
    assert found.train_job["spec"]["trainer"]["args"] == [
        "--tracker=$(JOBSET_NAME)-node-0-0.$(JOBSET_NAME)",
        "--peers=$(JOBSET_NAME)-node-0-1.$(JOBSET_NAME),$(JOBSET_NAME)-node-0-2.$(JOBSET_NAME)",
        "my-trees-worker-0",
    ]
    assert convert(jax_job(args=["trees-worker-1"])).train_job["spec"]["trainer"]["args"] == [
        "$(JOBSET_NAME)-node-0-1.$(JOBSET_NAME)"
    ]
