"""Conversions by `trainjob migrate` of public Training Operator jobs are accepted and get JobSets."""

from __future__ import annotations

import json
import re

import pytest

from tests.support.kubernetes_client import path_of
from tests.support.polling import wait_until
from tests.support.trainjobs import IMAGE, conditions, is_finished, list_pods, train_job
from tests.unit.migrate.expected_results import CASES, load_source
from trainjob.manifest import Dialect
from trainjob_migrate import Launch, convert

MANAGED_ELSEWHERE = "kueue.x-k8s.io/multikueue"


def dialect_of(target):
    if target.trainer >= (2, 2):
        return Dialect.V2_2
    return Dialect.V2_1 if target.trainer >= (2, 1) else Dialect.V2_0


def convert_cases(namespace, target):
    """Return the conversions of all cases, with unique names in the test's namespace.

    Jobs that cannot be converted are left out, and conversions for torchrun that equal those without it.
    """
    found = {}
    for case in CASES:
        for launch in (Launch.ENVIRONMENT, Launch.TORCHRUN):
            job = load_source(case)
            name = f"{case.replace('/', '-')}-{launch.value[0]}"
            job["metadata"] = {**job["metadata"], "name": name, "namespace": namespace}
            conversion = convert(job, dialect=dialect_of(target), launch=launch)
            wrapped = any("torchrun starts it" in finding.done for finding in conversion.findings)
            if conversion.train_job and (launch is Launch.ENVIRONMENT or wrapped):
                found[name] = conversion
    return found


def create_runtimes(client, namespace, conversions):
    """Create the generated runtimes, and wait until the webhook knows all of them.

    The webhook receives them in order, so the last one is enough.
    """
    runtimes = [one.runtime for one in conversions if one.runtime]
    if not runtimes:
        return
    for runtime in runtimes:
        client.create(runtime, namespace)
    probe = train_job(runtime=runtimes[-1]["metadata"]["name"], kind="TrainingRuntime")

    def is_known():
        response = client.request("POST", path_of("TrainJob", namespace), probe, dryRun="All")
        return "must be created before the TrainJob" not in response.message

    wait_until(is_known)


def list_warnings(client, namespace, name):
    """Return the messages of the Warning events of a TrainJob."""
    events = client.list("Event", namespace, fieldSelector=f"involvedObject.name={name},type=Warning")
    return [event.get("message") or event.get("note") for event in events]


def has_jobset(conversion):
    """Return whether this cluster's Trainer creates a JobSet for a conversion.

    It does not if the job has another managedBy.
    """
    return conversion.train_job["spec"].get("managedBy") != MANAGED_ELSEWHERE


def test_converted_jobs_are_accepted(client, namespace, target):
    """Every public v1 job that can be converted is accepted with Strict, like its runtime, and gets a JobSet."""
    conversions = convert_cases(namespace, target)
    assert len(conversions) >= 45
    if target.backend == "laptop":  # it refuses runtimes of MPI
        conversions = {name: one for name, one in conversions.items() if one.kind != "MPIJob"}
    create_runtimes(client, namespace, conversions.values())
    refused = {}
    for name, conversion in conversions.items():
        job = {**conversion.train_job, "spec": {**conversion.train_job["spec"], "suspend": True}}
        response = client.request("POST", path_of("TrainJob", namespace), job, fieldValidation="Strict")
        if not response.ok:
            refused[name] = f"{response.code} {response.message}"
    assert refused == {}
    ours = {conversion.train_job["metadata"]["name"] for conversion in conversions.values() if has_jobset(conversion)}

    def missing():
        return ours - {jobset["metadata"]["name"] for jobset in client.list("JobSet", namespace)}

    try:
        wait_until(lambda: not missing(), 300)
    except AssertionError:
        pytest.fail(str({name: list_warnings(client, namespace, name) for name in missing()}))


PRINT_LINES = {
    "XGBoostJob": "rank $RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT with $WORKER_ADDRS",
    "JAXJob": "rank $PROCESS_ID of $NUM_PROCESSES at $COORDINATOR_ADDRESS:$COORDINATOR_PORT",
}


def v1_job(kind, specs, container, replicas, line):
    """Return a v1 job of two pods that print a line."""
    command = ["sh", "-c", line]
    template = {"spec": {"containers": [{"name": container, "image": IMAGE, "command": command}]}}
    spec = {role: {"replicas": count, "restartPolicy": "OnFailure", "template": template} for role, count in replicas}
    return {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": {"name": "old"}, "spec": {specs: spec}}


def run_converted(client, namespace, target, job, name="old"):
    """Run a converted job under a name to its success, and return the log lines of its pods.

    The keys are replicated job and rank.
    """
    conversion = convert(job, dialect=dialect_of(target))
    assert not conversion.blockers
    create_runtimes(client, namespace, [conversion])
    client.create({**conversion.train_job, "metadata": {"name": name}}, namespace)
    ended = client.wait_for("TrainJob", namespace, name, is_finished, seconds=90)
    assert [condition[0] for condition in conditions(ended)] == ["Complete"]
    # The pods of MPI's nodes are deleted when the launcher has ended.
    names = [pod["metadata"]["name"] for pod in list_pods(client, namespace, name) if has_succeeded(pod)]
    return {pod[:-6]: client.log(namespace, pod, container="node").splitlines() for pod in sorted(names)}


def has_succeeded(pod):
    return pod["status"].get("phase") == "Succeeded"


@pytest.mark.parametrize("kind", PRINT_LINES)
def test_environment_of_converted_jobs(client, namespace, target, kind):
    """A converted XGBoostJob or JAXJob has its old environment variables, with the TrainJob's hosts."""
    if kind == "XGBoostJob":
        job = v1_job(kind, "xgbReplicaSpecs", "xgboost", [("Master", 1), ("Worker", 1)], f"echo {PRINT_LINES[kind]}")
    else:
        job = v1_job(kind, "jaxReplicaSpecs", "jax", [("Worker", 2)], f"echo {PRINT_LINES[kind]}")
    lines = [line for lines in run_converted(client, namespace, target, job).values() for line in lines]
    # Here pods are processes, and all hosts are this machine.
    hosts = [line.replace("old-node-0-0.old", "127.0.0.1").replace("old-node-0-1.old", "127.0.0.1") for line in lines]
    peers = " with 127.0.0.1" if kind == "XGBoostJob" else ""
    port = re.findall(r":(\d+)", hosts[0])[0]  # the kubelet gives each JobSet a port of its own
    assert hosts == [f"rank {rank} of 2 at 127.0.0.1:{port}{peers}" for rank in (0, 1)]
    assert int(port) >= 29500


def test_environment_of_a_converted_tfjob(client, namespace, target):
    """The Workers of a converted TFJob have TF_CONFIG, in JSON, with the hosts of the TrainJob and the own index."""
    job = v1_job("TFJob", "tfReplicaSpecs", "tensorflow", [("Worker", 2)], "printenv TF_CONFIG")
    found = [json.loads(line) for lines in run_converted(client, namespace, target, job).values() for line in lines]
    for rank, config in enumerate(found):
        # Here pods are processes, and all hosts are this machine.
        workers = enumerate(config["cluster"]["worker"])
        given = [host.replace(f"old-node-0-{number}.old", "127.0.0.1") for number, host in workers]
        assert [host.partition(":")[0] for host in given] == ["127.0.0.1", "127.0.0.1"]
        assert config["task"] == {"type": "worker", "index": rank}
    assert len(found) == 2


@pytest.mark.since("2.0")
def test_hosts_of_converted_jobs_follow_the_name(client, namespace, target):
    """The hosts in a converted job's command, env and init containers have the name under which it is created."""
    line = 'echo "$PEER old-master-0" && printenv MASTER_ADDR'
    container = {"name": "pytorch", "image": IMAGE, "command": ["sh", "-c", line]}
    container["env"] = [{"name": "PEER", "value": "tcp://old-worker-0:1"}]
    wait = {"name": "wait", "image": IMAGE, "command": ["sh", "-c", "test old-master-0 = $PEER"]}
    wait["env"] = [{"name": "PEER", "value": "old-master-0"}]
    pod = {"spec": {"initContainers": [wait], "containers": [container]}}
    replica = {"replicas": 1, "restartPolicy": "OnFailure", "template": pod}
    job = v1_job("PyTorchJob", "pytorchReplicaSpecs", "pytorch", [], "")
    job["spec"]["pytorchReplicaSpecs"] = {"Master": replica, "Worker": replica}
    lines = run_converted(client, namespace, target, job, name="new-1a2b").values()
    # Here pods are processes, and all hosts are this machine.
    seen = [line.replace("new-1a2b-node-0-0.new-1a2b", "127.0.0.1") for line in next(iter(lines))]
    seen = [line.replace("new-1a2b-node-0-1.new-1a2b", "127.0.0.1") for line in seen]
    assert len(lines) == 2
    assert seen == ["tcp://127.0.0.1:1 127.0.0.1", "127.0.0.1"]


@pytest.mark.only("controlplane")
def test_a_converted_mpi_job(client, namespace, target):
    """The launcher of a converted MPIJob starts when its nodes run. Its end is the end of the job."""
    template = {"spec": {"containers": [{"name": "mpi", "image": IMAGE, "command": ["sh", "-c", "exec sleep 100"]}]}}
    line = "sort /etc/mpi/hostfile; echo old-worker-1"
    launcher = {"spec": {"containers": [{"name": "mpi", "image": IMAGE, "command": ["sh", "-c"], "args": [line]}]}}
    specs = {"Launcher": {"replicas": 1, "template": launcher}, "Worker": {"replicas": 2, "template": template}}
    job = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "old"},
        "spec": {"slotsPerWorker": 4, "mpiReplicaSpecs": specs},
    }
    lines = run_converted(client, namespace, target, job)
    # In a word of a command, the name of a host is replaced by this machine's address.
    assert lines["old-launcher-0-0"] == ["old-node-0-0.old slots=4", "old-node-0-1.old slots=4", "127.0.0.1"]
