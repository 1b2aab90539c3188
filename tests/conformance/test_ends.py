"""Why a job has ended: whether its command, its memory, its node or the scheduler is to blame."""

from __future__ import annotations

import pytest

from tests.conformance.runtimes import never, own_runtime, step
from tests.support.diagnosed_jobs import own, row, shell
from tests.support.kubernetes_client import path_of
from tests.support.polling import until
from tests.support.trainjobs import JOBSET, counters, pods_of
from trainjob import Placement
from trainjob.errors import CommandFailed, Interrupted, NeverStarted, OutOfMemory
from trainjob_local.kubelet.kubelet import FAULT

# What only a whole control plane does.
real = pytest.mark.only("controlplane-2.3")


def strike(client, namespace, waiter, fault):
    """Lets a fault of the kubelet hit a job's running pod."""
    name = waiter.reference.name
    client.until("TrainJob", namespace, name, lambda job: counters(job).get("node", {}).get("ready"))
    (pod,) = pods_of(client, namespace, name)
    client.patch("Pod", namespace, pod["metadata"]["name"], {"metadata": {"annotations": {FAULT: fault}}})


@pytest.mark.parametrize(
    ("fault", "expected", "retryable"), [("OOMKilled", OutOfMemory, False), ("Evicted", Interrupted, True)]
)
def test_ended_by_its_node(client, namespace, target, group, evidence, fault, expected, retryable):
    """A container that is out of memory is not retried, a pod that its node evicts is."""
    waiter = group.submit(fault, shell("exec sleep 60"))
    strike(client, namespace, waiter, fault)
    error = waiter.error(300)
    assert (type(error), error.retryable) == (expected, retryable)
    assert error.outcome.exit_code in (137, 143)
    assert fault in str(error)
    evidence("diagnosis", **row(fault, target.backend, error.outcome.message, error))


def test_command_that_is_not_there(target, group, evidence):
    """A command that is not in the image is told as that, and no retry is made of it."""
    error = group.submit("command", shell(command=["no-such-program"])).error(300)
    assert (type(error), error.retryable) == (NeverStarted, False)
    evidence("diagnosis", **row("command not found", target.backend, error.outcome.message, error))


def test_initializer(client, namespace, target, group, evidence):
    """An initializer that fails is told with its name and its last lines."""
    script = "echo 'no such dataset' >&2; exit 3"
    own_runtime(client, namespace, step("dataset-initializer", script), step(needs=["dataset-initializer"]))
    error = group.submit("initializer", own()).error(300)
    assert (type(error), error.outcome.step, error.outcome.exit_code) == (CommandFailed, "dataset-initializer", 3)
    assert error.outcome.log_tail == ("no such dataset",)
    assert "a wrong address" in error.hint
    evidence("diagnosis", **row("initializer failed", target.backend, error.outcome.message, error))


def test_crash_loop(target, group, evidence):
    """A container that may be restarted and fails again and again is told while it lasts, and fails in the end."""
    waiter = group.submit("crash", shell("exit 3", job={"max_restarts": 2}))
    told = waiter.until_told("CrashLoopBackOff")
    error = waiter.error(300)
    assert (type(error), error.outcome.exit_code) == (CommandFailed, 3)
    evidence("diagnosis", **row("crash loop", target.backend, told, error, early=False))


@real
def test_drained(client, namespace, target, group, evidence):
    """A pod that is evicted through the API, as a drain of its node does, is retried: its command did not fail."""
    own_runtime(client, namespace, never())
    waiter = group.submit("drain", own("exec sleep 60"))
    name = waiter.reference.name
    client.until("TrainJob", namespace, name, lambda job: counters(job).get("node", {}).get("ready"))
    (pod,) = pods_of(client, namespace, name)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod["metadata"]["name"]}}
    path = path_of("Pod", namespace, pod["metadata"]["name"], "eviction")
    assert client.ask("POST", path, eviction).code == 201
    error = waiter.error(300)
    assert (type(error), error.retryable, error.outcome.exit_code) == (Interrupted, True, 143)
    assert "EvictionByEvictionAPI" in error.outcome.message
    evidence("diagnosis", **row("evicted through the API", target.backend, error.outcome.message, error, early=False))


@pytest.fixture
def scarce(client, unique):
    """A resource of which the node has one."""
    (node,) = [one["metadata"]["name"] for one in client.list("Node", None) if "process" in one["metadata"]["name"]]
    name = f"example.org/{unique}"

    def set_to(amount):
        change = {"status": {"capacity": {name: amount}, "allocatable": {name: amount}}}
        assert client.ask("PATCH", path_of("Node", None, node, "status"), change).ok

    set_to("1")
    yield name
    set_to(None)


@real
def test_preempted(client, namespace, unique, scarce, target, group, evidence):
    """A pod that the scheduler preempts is retried, too."""
    own_runtime(client, namespace, never())
    job = own("exec sleep 60").model_copy(
        update={"trainer": shell("exec sleep 60", resources_per_node={scarce: 1}).trainer}
    )
    waiter = group.submit("preempted", job)
    client.until("TrainJob", namespace, waiter.reference.name, lambda one: counters(one).get("node", {}).get("ready"))
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": unique}, "value": 1000}
    assert client.ask("POST", path, body).code == 201
    try:
        container = {"name": "c", "image": "i", "command": ["sleep", "60"], "resources": {"limits": {scarce: "1"}}}
        spec = {"priorityClassName": unique, "restartPolicy": "Never", "containers": [container]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "first"}, "spec": spec}
        pods = path_of("Pod", namespace)  # admission looks the class up in a cache
        until(lambda: client.ask("POST", pods, pod, dryRun="All").ok)
        client.create(pod, namespace)
        error = waiter.error(300)
    finally:
        assert client.ask("DELETE", f"{path}/{unique}").ok
    assert (type(error), error.retryable) == (Interrupted, True)
    assert "PreemptionByScheduler" in error.outcome.message
    evidence("diagnosis", **row("preempted", target.backend, error.outcome.message, error, early=False))


@real
def test_node_lost(client, namespace, unique, target, group, evidence):
    """A pod whose node is gone is retried: nothing is wrong with its step."""
    own_runtime(client, namespace, never())
    job = own().model_copy(update={"placement": Placement(node_selector={"example.org/gone": unique})})
    waiter = group.submit("node lost", job)
    query = {"labelSelector": f"{JOBSET}={waiter.reference.name}"}
    pod = client.until("Pod", namespace, "", bool, **query)["metadata"]["name"]
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod},
        "target": {"kind": "Node", "name": unique},
    }
    assert client.ask("POST", path_of("Pod", namespace, pod, "binding"), binding).code == 201
    error = waiter.error()  # the garbage collector waits for 40 s, and looks every 20 s
    assert (type(error), error.retryable, error.outcome.exit_code) == (Interrupted, True, None)
    assert "DeletionByPodGC" in error.outcome.message
    evidence("diagnosis", **row("node lost", target.backend, error.outcome.message, error, early=False))
