"""What `trainjob migrate` makes of the public jobs of the Training Operator is accepted, and becomes JobSets."""

from __future__ import annotations

import pytest

from tests.support.kubernetes_client import path_of
from tests.support.polling import wait_until
from tests.support.trainjobs import IMAGE, conditions, is_finished, list_pods, train_job
from tests.unit.migrate.expected_results import CASES, load_source
from trainjob.manifest import Dialect
from trainjob_migrate import Launch, convert

pytestmark = [pytest.mark.timeout(300)]
MANAGED_ELSEWHERE = "kueue.x-k8s.io/multikueue"


def dialect_of(target):
    return Dialect.V2_2 if target.trainer >= (2, 2) else Dialect.V2_1


def convert_cases(namespace, target):
    """Each case's conversions, under names of their own in the test's namespace; what is refused is left out.

    One that torchrun is to start is left out where that is the same as without it.
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
    """Applies the generated runtimes, and waits until the webhook, which hears of them in order, knows the last."""
    runtimes = [one.runtime for one in conversions if one.runtime]
    if not runtimes:
        return
    for runtime in runtimes:
        client.create(runtime, namespace)
    probe = train_job(runtime=runtimes[-1]["metadata"]["name"], kind="TrainingRuntime")

    def is_known():
        answer = client.request("POST", path_of("TrainJob", namespace), probe, dryRun="All")
        return "must be created before the TrainJob" not in answer.message

    wait_until(is_known)


def list_warnings(client, namespace, name):
    """What the Trainer's events say of a TrainJob."""
    events = client.list("Event", namespace, fieldSelector=f"involvedObject.name={name},type=Warning")
    return [event.get("message") or event.get("note") for event in events]


def has_jobset(conversion):
    """Whether this cluster's Trainer makes one of it: not for another cluster's, nor without its gangs' scheduler."""
    is_gang = "podGroupPolicy" in (conversion.runtime or {"spec": {}})["spec"]
    return conversion.train_job["spec"].get("managedBy") != MANAGED_ELSEWHERE and not is_gang


def test_what_is_converted_is_accepted(client, namespace, target):
    """Every public v1 job that is converted is accepted with its runtime, strictly, and becomes a JobSet."""
    conversions = convert_cases(namespace, target)
    assert len(conversions) >= 45
    create_runtimes(client, namespace, conversions.values())
    refused = {}
    for name, conversion in conversions.items():
        job = {**conversion.train_job, "spec": {**conversion.train_job["spec"], "suspend": True}}
        answer = client.request("POST", path_of("TrainJob", namespace), job, fieldValidation="Strict")
        if not answer.ok:
            refused[name] = f"{answer.code} {answer.message}"
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
    """A v1 job of two pods that say something."""
    command = ["sh", "-c", line]
    template = {"spec": {"containers": [{"name": container, "image": IMAGE, "command": command}]}}
    spec = {role: {"replicas": count, "restartPolicy": "OnFailure", "template": template} for role, count in replicas}
    return {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": {"name": "old"}, "spec": {specs: spec}}


def run_converted(client, namespace, target, job):
    """What the pods of a converted job say, by replicated job and rank, when it has ended well."""
    conversion = convert(job, dialect=dialect_of(target))
    assert not conversion.blockers
    create_runtimes(client, namespace, [conversion])
    client.create(conversion.train_job, namespace)
    ended = client.wait_for("TrainJob", namespace, "old", is_finished, seconds=90)
    assert [condition[0] for condition in conditions(ended)] == ["Complete"]
    # Those of MPI's nodes go when the launcher has ended.
    names = [pod["metadata"]["name"] for pod in list_pods(client, namespace, "old") if has_succeeded(pod)]
    return {name[:-6]: client.log(namespace, name).splitlines() for name in sorted(names)}


def has_succeeded(pod):
    return pod["status"].get("phase") == "Succeeded"


@pytest.mark.parametrize("kind", PRINT_LINES)
def test_what_a_converted_job_sees(client, namespace, target, kind):
    """A converted XGBoostJob or JAXJob sees the variables that it had, with the TrainJob's hosts in them."""
    if kind == "XGBoostJob":
        job = v1_job(kind, "xgbReplicaSpecs", "xgboost", [("Master", 1), ("Worker", 1)], f"echo {PRINT_LINES[kind]}")
    else:
        job = v1_job(kind, "jaxReplicaSpecs", "jax", [("Worker", 2)], f"echo {PRINT_LINES[kind]}")
    said = [line for lines in run_converted(client, namespace, target, job).values() for line in lines]
    # Pods are processes here, and their hosts this machine.
    hosts = [line.replace("old-node-0-0.old", "127.0.0.1").replace("old-node-0-1.old", "127.0.0.1") for line in said]
    peers = " with 127.0.0.1" if kind == "XGBoostJob" else ""
    assert hosts == [f"rank {rank} of 2 at 127.0.0.1:29500{peers}" for rank in (0, 1)]


@pytest.mark.only("controlplane")
def test_a_converted_mpi_job(client, namespace, target):
    """A converted MPIJob's launcher starts when its nodes are up, is none of them, and its end is the job's."""
    template = {"spec": {"containers": [{"name": "mpi", "image": IMAGE, "command": ["sh", "-c", "exec sleep 100"]}]}}
    line = "sort /etc/mpi/hostfile"
    starts = {"spec": {"containers": [{"name": "mpi", "image": IMAGE, "command": ["sh", "-c"], "args": [line]}]}}
    specs = {"Launcher": {"replicas": 1, "template": starts}, "Worker": {"replicas": 2, "template": template}}
    job = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "old"},
        "spec": {"slotsPerWorker": 4, "mpiReplicaSpecs": specs},
    }
    said = run_converted(client, namespace, target, job)
    assert said["old-launcher-0-0"] == ["old-node-0-0.old slots=4", "old-node-0-1.old slots=4"]
