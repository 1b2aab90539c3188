"""Reported causes of failed jobs: the command, lack of memory, the loss of a pod or its node, and preemption."""

from __future__ import annotations

import pytest

from tests.conformance.runtimes import create_own_runtime, never_restarted_job, replicated_job
from tests.support.diagnosed_jobs import diagnosis_row, own_runtime_job, shell_job
from tests.support.kubernetes_client import path_of
from tests.support.polling import wait_until
from tests.support.trainjobs import JOBSET, counters, list_pods
from trainjob import Placement
from trainjob.errors import CommandFailed, Interrupted, NeverStarted, OutOfMemory
from trainjob_local.kubelet.kubelet import FAULT_ANNOTATION

# Cases that need a whole control plane.
only_real = pytest.mark.only("controlplane-2.3")


def inject_fault(client, namespace, waiter, fault):
    """Inject a kubelet fault into a job's running pod."""
    name = waiter.reference.name
    client.wait_for("TrainJob", namespace, name, lambda job: counters(job).get("node", {}).get("ready"))
    (pod,) = list_pods(client, namespace, name)
    client.patch("Pod", namespace, pod["metadata"]["name"], {"metadata": {"annotations": {FAULT_ANNOTATION: fault}}})


@pytest.mark.parametrize(
    ("fault", "expected", "retryable"), [("OOMKilled", OutOfMemory, False), ("Evicted", Interrupted, True)]
)
def test_out_of_memory_and_eviction(client, namespace, target, job_group, evidence, fault, expected, retryable):
    """Running out of memory is not retryable. An eviction by the node is retryable."""
    waiter = job_group.submit(fault, shell_job("exec sleep 60"))
    inject_fault(client, namespace, waiter, fault)
    error = waiter.job_error(300)
    assert (type(error), error.retryable) == (expected, retryable)
    assert error.outcome.exit_code in (137, 143)
    assert fault in str(error)
    evidence("diagnosis", **diagnosis_row(fault, target.backend, error.outcome.message, error))


def test_missing_command(target, job_group, evidence):
    """A command that the image does not contain is reported as not found, and is not retryable."""
    error = job_group.submit("command", shell_job(command=["no-such-program"])).job_error(300)
    assert (type(error), error.retryable) == (NeverStarted, False)
    evidence("diagnosis", **diagnosis_row("command not found", target.backend, error.outcome.message, error))


def test_failed_initializer(client, namespace, target, job_group, evidence):
    """A failed initializer is reported with its name and its last log lines."""
    script = "echo 'no such dataset' >&2; exit 3"
    create_own_runtime(
        client,
        namespace,
        replicated_job("dataset-initializer", script),
        replicated_job(depends_on=["dataset-initializer"]),
    )
    error = job_group.submit("initializer", own_runtime_job()).job_error(300)
    assert (type(error), error.outcome.step, error.outcome.exit_code) == (CommandFailed, "dataset-initializer", 3)
    assert error.outcome.log_tail == ("no such dataset",)
    assert "check the address" in error.hint
    evidence("diagnosis", **diagnosis_row("initializer failed", target.backend, error.outcome.message, error))


def test_crash_loop(target, job_group, evidence):
    """A container that keeps failing is reported while its restarts last. Then the job fails."""
    waiter = job_group.submit("crash", shell_job("exit 3", job={"max_restarts": 2}))
    report = waiter.wait_for_report("CrashLoopBackOff")
    error = waiter.job_error(300)
    assert (type(error), error.outcome.exit_code) == (CommandFailed, 3)
    evidence("diagnosis", **diagnosis_row("crash loop", target.backend, report, error, ended_early=False))


@only_real
def test_eviction_through_the_api(client, namespace, target, job_group, evidence):
    """An eviction through the API, such as by `kubectl drain`, is retryable."""
    create_own_runtime(client, namespace, never_restarted_job())
    waiter = job_group.submit("drain", own_runtime_job("exec sleep 60"))
    name = waiter.reference.name
    client.wait_for("TrainJob", namespace, name, lambda job: counters(job).get("node", {}).get("ready"))
    (pod,) = list_pods(client, namespace, name)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod["metadata"]["name"]}}
    path = path_of("Pod", namespace, pod["metadata"]["name"], "eviction")
    assert client.request("POST", path, eviction).code == 201
    error = waiter.job_error(300)
    assert (type(error), error.retryable, error.outcome.exit_code) == (Interrupted, True, 143)
    assert "EvictionByEvictionAPI" in error.outcome.message
    evidence(
        "diagnosis",
        **diagnosis_row("evicted through the API", target.backend, error.outcome.message, error, ended_early=False),
    )


@pytest.fixture
def scarce_resource(client, unique):
    """Add a resource to the node, which has one of it, and return the name of the resource."""
    (node,) = [one["metadata"]["name"] for one in client.list("Node", None) if "process" in one["metadata"]["name"]]
    name = f"example.org/{unique}"

    def set_to(amount):
        change = {"status": {"capacity": {name: amount}, "allocatable": {name: amount}}}
        assert client.request("PATCH", path_of("Node", None, node, "status"), change).ok

    set_to("1")
    yield name
    set_to(None)


@only_real
def test_preemption(client, namespace, unique, scarce_resource, target, job_group, evidence):
    """A preemption by the scheduler is retryable."""
    create_own_runtime(client, namespace, never_restarted_job())
    job = own_runtime_job("exec sleep 60").model_copy(
        update={"trainer": shell_job("exec sleep 60", resources_per_node={scarce_resource: 1}).trainer}
    )
    waiter = job_group.submit("preempted", job)
    client.wait_for(
        "TrainJob", namespace, waiter.reference.name, lambda one: counters(one).get("node", {}).get("ready")
    )
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": unique}, "value": 1000}
    assert client.request("POST", path, body).code == 201
    try:
        container = {
            "name": "c",
            "image": "i",
            "command": ["sleep", "60"],
            "resources": {"limits": {scarce_resource: "1"}},
        }
        spec = {"priorityClassName": unique, "restartPolicy": "Never", "containers": [container]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "first"}, "spec": spec}
        pods = path_of("Pod", namespace)  # admission looks the PriorityClass up in a cache
        wait_until(lambda: client.request("POST", pods, pod, dryRun="All").ok)
        client.create(pod, namespace)
        error = waiter.job_error(300)
    finally:
        assert client.request("DELETE", f"{path}/{unique}").ok
    assert (type(error), error.retryable) == (Interrupted, True)
    assert "PreemptionByScheduler" in error.outcome.message
    evidence("diagnosis", **diagnosis_row("preempted", target.backend, error.outcome.message, error, ended_early=False))


@only_real
def test_lost_node(client, namespace, unique, target, job_group, evidence):
    """The loss of a pod's node is retryable."""
    create_own_runtime(client, namespace, never_restarted_job())
    job = own_runtime_job().model_copy(update={"placement": Placement(node_selector={"example.org/gone": unique})})
    waiter = job_group.submit("node lost", job)
    query = {"labelSelector": f"{JOBSET}={waiter.reference.name}"}
    pod = client.wait_for("Pod", namespace, "", bool, **query)["metadata"]["name"]
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod},
        "target": {"kind": "Node", "name": unique},
    }
    assert client.request("POST", path_of("Pod", namespace, pod, "binding"), binding).code == 201
    error = waiter.job_error()  # the pod garbage collector waits for 40 s, and runs every 20 s
    assert (type(error), error.retryable, error.outcome.exit_code) == (Interrupted, True, None)
    assert "DeletionByPodGC" in error.outcome.message
    evidence("diagnosis", **diagnosis_row("node lost", target.backend, error.outcome.message, error, ended_early=False))
