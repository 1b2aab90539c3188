"""Topology-aware scheduling of a real Kueue: the pods of a TrainJob run in one rack of a cluster with five nodes."""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest
import yaml

import control_plane
from control_plane import ControlPlane
from tests.e2e.controlplane.queues import kueue_object, workload_of
from tests.support.code_blocks import ALL_BLOCKS
from tests.support.diagnosed_jobs import shell_job
from tests.support.kubernetes_client import Client
from tests.support.polling import wait_until
from trainjob import Queue
from trainjob.inspection.check import check_namespace

pytestmark = pytest.mark.timeout(300)
KUBELET = Path(control_plane.__file__).with_name("run_kubelet.py")
BLOCK, RACK = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"
RACKS = {"a1": "a", "a2": "a", "b1": "b", "b2": "b"}
"""Rack of each node; a node has two CPUs, and the control plane's own node is in no rack."""
PODSET = "kueue.x-k8s.io/podset-"
TOPOLOGY_OF_THE_PAGE = next(block.text for block in ALL_BLOCKS if "kind: Topology\n" in block.text)


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    if reason := ControlPlane.unavailable_reason(kueue=True):
        pytest.skip(reason)
    with ControlPlane(tmp_path_factory.mktemp("topology") / "state", kueue=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(plane):
    with contextlib.closing(Client.from_kubeconfig(str(plane.kubeconfig))) as opened, contextlib.ExitStack() as stack:
        for node, rack in RACKS.items():
            stack.enter_context(run_kubelet(plane, node))
            wait_until(lambda name=node: opened.request("GET", f"/api/v1/nodes/{name}").ok)
            labels = {"pool": "gpus", BLOCK: "one", RACK: rack}
            opened.patch("Node", None, node, {"metadata": {"labels": labels}})
        for document in yaml.safe_load_all(TOPOLOGY_OF_THE_PAGE):
            opened.create(document)
        yield opened


@contextlib.contextmanager
def run_kubelet(plane, node):
    """Run the kubelet of a further node as a process, with the control plane's images."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        *(sys.executable, str(KUBELET), "--server", plane.server, "--pki", str(plane.state / "pki")),
        *("--images", str(plane.state / "images.json"), "--state", str(plane.state / node), "--port", str(port)),
        *("--node", node, "--cpus", "2"),
    ]
    with (plane.state / f"{node}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture
def namespace(client, unique):
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique}}, "")
    resources = [{"name": "cpu", "nominalQuota": 8}]
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "gpu", "resources": resources}]}
    client.create(kueue_object("ClusterQueue", unique, spec={"namespaceSelector": {}, "resourceGroups": [group]}))
    client.create(kueue_object("LocalQueue", "racks", spec={"clusterQueue": unique}), unique)
    return unique


def gated_job(tmp_path, nodes, **job):
    """Return a job of pods that need a whole node each, and run until the file `go` exists."""
    script = f"until test -e {tmp_path}/go; do sleep 0.1; done"
    return shell_job(script, num_nodes=nodes, resources_per_node={"cpu": 2}, job=job)


def racks_of(client, namespace, job, count):
    """Return the rack of each pod of a TrainJob once all of them have a node."""

    def find():
        pods = client.list("Pod", namespace, labelSelector=f"jobset.sigs.k8s.io/jobset-name={job}")
        nodes = [pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")]
        return nodes if len(nodes) == count else None

    return sorted(RACKS[node] for node in wait_until(find))


def topology_request(client, namespace, waiter):
    workload = workload_of(client, namespace, waiter.reference.uid)
    [podset] = workload["spec"]["podSets"]
    return podset["topologyRequest"]


def test_pods_run_in_one_rack(client, namespace, job_group, tmp_path):
    """A queue's topology, or Kueue's annotation of a request, places all pods in one rack."""
    required = job_group.submit("queue", gated_job(tmp_path, 2, queue=Queue(name="racks", topology=RACK)))
    by_annotation = job_group.submit(
        "annotation", gated_job(tmp_path, 2, queue="racks", annotations={f"{PODSET}required-topology": RACK})
    )
    for waiter in (required, by_annotation):
        waiter.wait_for_report("Running")
        assert topology_request(client, namespace, waiter)["required"] == RACK
        assert len(set(racks_of(client, namespace, waiter.reference.name, 2))) == 1
    (tmp_path / "go").touch()
    assert required.outcome.result(60).succeeded
    assert by_annotation.outcome.result(60).succeeded


def test_the_check_shows_what_a_queue_offers(cluster, namespace):
    """`trainjob check` shows the quota of a queue's flavors, and the levels of their topology."""
    rows = check_namespace(cluster.inspect_platform(namespace, "torch-distributed"), datetime.now(timezone.utc))
    [row] = [row for row in rows if row.name == "kueue"]
    levels = f"{BLOCK} > {RACK} > kubernetes.io/hostname"
    assert row.text == f"queues: racks (gpu: cpu 8, topology datacenter: {levels})"


def test_more_pods_than_a_rack_has(client, namespace, job_group, tmp_path):
    """If a rack is too small, a required topology waits with Kueue's reason, and a preferred one spreads the pods."""
    required = job_group.submit("required", gated_job(tmp_path, 3, queue=Queue(name="racks", topology=RACK)))
    report = required.wait_for_report("topology")
    assert "Queued (WaitingForQuota: waiting for quota in queue racks; " in report
    assert re.search(r'topology "datacenter" .*2 out of 3 pod\(s\)', report), report
    preferred = Queue(name="racks", topology=RACK, topology_mode="preferred")
    spread = job_group.submit("preferred", gated_job(tmp_path, 3, queue=preferred))
    spread.wait_for_report("Running")
    assert topology_request(client, namespace, spread)["preferred"] == RACK
    assert set(racks_of(client, namespace, spread.reference.name, 3)) == {"a", "b"}
    anywhere = job_group.submit("any", gated_job(tmp_path, 1, queue=Queue(name="racks", topology_mode="unconstrained")))
    anywhere.wait_for_report("Running")
    assert topology_request(client, namespace, anywhere)["unconstrained"] is True
    (tmp_path / "go").touch()
    assert spread.outcome.result(60).succeeded
