"""JAX and XGBoost runtimes: variables of their processes, and functions that start without torchrun."""

from __future__ import annotations

import pytest

from tests.conformance.admission_cases import denied, dry_run_cases, trainer_case
from tests.conformance.built_jobsets import (
    create_jobsets,
    find_container,
    find_replicated_job,
    gpu_resources,
    read_environment,
)
from tests.conformance.runtimes import create_runtime, replicated_job
from tests.support.trainjobs import IMAGE, train_job
from trainjob import CustomTrainer, RunKey, Runtime, TrainJob
from trainjob.lifecycle import Listener, submit, wait
from trainjob.status import parse_step_result

pytestmark = pytest.mark.since("2.2")

RANK = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
PORT = [{"containerPort": 29500, "protocol": "TCP"}]
OWN_VARIABLES = [{"name": "A", "value": "$(JAX_PROCESS_ID)"}, {"name": "JAX_NUM_PROCESSES", "value": "7"}]


def test_jax_variables(client, namespace):
    """JAX processes get their count, rank and coordinator. The trainer's own variables follow and can replace them."""
    job = train_job(runtime="jax-distributed", trainer={"env": OWN_VARIABLES[:1], "numNodes": 2})
    other = train_job(runtime="jax-distributed", trainer={"env": OWN_VARIABLES})
    jobsets = create_jobsets(client, namespace, {"job": job, "other": other})
    found = find_container(jobsets["job"])
    assert list(read_environment(found).items()) == [
        *[("JAX_NUM_PROCESSES", "2"), ("JAX_PROCESS_ID", RANK)],
        *[("JAX_COORDINATOR_ADDRESS", "job-node-0-0.job:29500"), ("A", "$(JAX_PROCESS_ID)")],
    ]
    assert found["ports"] == PORT
    spec = find_replicated_job(jobsets["job"])["template"]["spec"]
    assert (spec["parallelism"], spec["completions"]) == (2, 2)
    assert read_environment(find_container(jobsets["other"]))["JAX_NUM_PROCESSES"] == "7"


def test_xgboost_variables(client, namespace):
    """XGBoost processes get tracker, rank and number of workers: one for each GPU or, without GPUs, for each node."""
    jobs = {
        "cpus": train_job(runtime="xgboost-distributed", trainer={"env": OWN_VARIABLES[:1], "numNodes": 2}),
        "gpus": train_job(runtime="xgboost-distributed", trainer={"numNodes": 2, "resourcesPerNode": gpu_resources(4)}),
        "bare": train_job(runtime="xgboost-distributed"),
    }
    jobsets = create_jobsets(client, namespace, jobs)
    assert read_environment(find_container(jobsets["cpus"])) == {  # their order varies
        "A": "$(JAX_PROCESS_ID)",
        "DMLC_TRACKER_URI": "cpus-node-0-0.cpus",
        "DMLC_TRACKER_PORT": "29500",
        "DMLC_TASK_ID": RANK,
        "DMLC_NUM_WORKER": "2",
    }
    assert find_container(jobsets["cpus"])["ports"] == PORT
    assert read_environment(find_container(jobsets["gpus"]))["DMLC_NUM_WORKER"] == "8"
    assert "env" not in find_container(jobsets["bare"])


def test_reserved_variables(client, namespace, target):
    """A TrainJob may not set the reserved variables of the XGBoost runtime."""
    text = "spec.trainer.env[1]: Forbidden: DMLC_TASK_ID is reserved for the XGBoost runtime"
    env = [{"name": "X", "value": "1"}, {"name": "DMLC_TASK_ID", "value": "1"}]
    case = trainer_case("reserved", denied(text), env=env)
    case.job["spec"]["runtimeRef"]["name"] = "xgboost-distributed"
    found, expected = dry_run_cases(client, namespace, target.trainer, [case])
    assert found == expected


def report_environment():
    import os
    import sys

    names = ("JAX_PROCESS_ID", "DMLC_TASK_ID", "PET_NNODES", "RANK")
    return [sys.argv[1:], [name for name in names if name in os.environ], os.environ["JOB_COMPLETION_INDEX"]]


@pytest.mark.parametrize("policy", ["jax", "xgboost", ""])
def test_functions(client, cluster, namespace, policy, unique, target, evidence):
    """On a runtime without torch a function runs once on each node, and the result of rank 0 is returned."""
    spec = {"mlPolicy": {"numNodes": 1, **({policy: {}} if policy else {})}}
    create_runtime(client, namespace, {**spec, "template": {"spec": {"replicatedJobs": [replicated_job()]}}})
    trainer = CustomTrainer(func=report_environment, image=IMAGE, num_nodes=2)
    request = TrainJob(trainer=trainer, runtime=Runtime(name="own", kind="TrainingRuntime"))
    lines = []
    reference = submit(cluster, request, RunKey("conformance", "frameworks", unique, "run-1"))
    wait(cluster, reference, listener=Listener(on_log=lines.append)).raise_for_failure()
    results = [result for line in lines if (result := parse_step_result(line.text))]
    own = {"jax": ["JAX_PROCESS_ID"], "xgboost": ["DMLC_TASK_ID"], "": []}[policy]
    assert results == [{"result": [[], own, "0"]}]
    if policy and target.backend != "laptop":
        evidence("features", row={"jax": "JAX", "xgboost": "XGBoost"}[policy], cell="control plane")
