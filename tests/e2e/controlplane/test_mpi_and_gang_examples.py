"""The examples with MPI and gang scheduling on a real control plane, by Airflow and by KFP."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from control_plane import ControlPlane
from tests.support import dag_examples
from tests.support.kubernetes_client import Client, path_of
from tests.support.pod_groups import group_path, install_crd
from tests.support.polling import wait_until

ROOT = Path(__file__).resolve().parents[3]
RUNTIMES = ROOT / ".venv" / "runtimes"

pytestmark = pytest.mark.timeout(300)
needs_mpi = pytest.mark.skipif(
    not (RUNTIMES / ".ready").exists(), reason="`make .venv/runtimes/.ready` has not been run"
)
# A replacement for ssh that runs the command on this machine, whatever the host.
RSH = """#!/bin/sh
while :; do case "$1" in -o) shift 2 ;; -*) shift ;; *) break ;; esac; done
shift
exec sh -c "$*"
"""
# All hosts are one machine: use the loopback device, and no shared memory between hosts.
MPI = {
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "tcp,self",
    "OMPI_MCA_btl_tcp_if_include": "lo",
    "OMPI_MCA_coll": "basic,libnbc,self,sync,inter",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    if reason := ControlPlane.unavailable_reason():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("accepted")
    rsh = folder / "rsh"
    rsh.write_text(RSH)
    rsh.chmod(0o755)
    pods = {**MPI, "PRTE_MCA_plm_ssh_agent": str(rsh)}
    environments = {"deepspeed": RUNTIMES}
    with ControlPlane(folder / "state", environments=environments, pod_env=pods) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(plane):
    with contextlib.closing(Client.from_kubeconfig(str(plane.kubeconfig))) as opened:
        opened.create(yaml.safe_load((ROOT / "manifests" / "runtimes" / "torch-coscheduling.yaml").read_text()))
        install_crd(opened, "coscheduling")
        remove_sshd_from_runtime(opened)
        yield opened


def remove_sshd_from_runtime(client):
    """Replace the SSH server in the stock runtime's nodes, which this machine may not have."""
    name = "deepspeed-distributed"
    jobs = client.get("ClusterTrainingRuntime", None, name)["spec"]["template"]["spec"]["replicatedJobs"]
    [node] = (job for job in jobs if job["name"] == "node")
    [container] = node["template"]["spec"]["template"]["spec"]["containers"]
    container.update(command=["sleep", "600"], args=[])
    client.patch("ClusterTrainingRuntime", None, name, {"spec": {"template": {"spec": {"replicatedJobs": jobs}}}})


@pytest.fixture(scope="module")
def dags(plane, tmp_path_factory):
    home = tmp_path_factory.mktemp("airflow")
    runs = dag_examples.ExampleRuns(dag_examples.airflow_environment(plane.kubeconfig, home), home / "airflow.log")
    yield runs
    runs.stop()


@pytest.fixture
def run_example(dags, plane):
    """Return a function that runs an example to its success, and returns its log.

    Its first argument is a column of docs/evidence/features.md, which names the engine.
    """

    def run(cell, name):
        return {"Airflow example": run_dag, "KFP example": run_pipeline}[cell](name)

    def run_dag(name):
        done = dags.run(name)
        assert done["state"] == "success", dags.read_log()[-6000:]
        return dags.read_log()

    def run_pipeline(name):
        command = [ROOT / ".venv" / "kfp" / "bin" / "python", ROOT / "examples" / "kfp" / f"{name}.py", "run"]
        environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, done.stdout[-8000:]
        return done.stdout

    return run


@needs_mpi
@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("cell", ["Airflow example", "KFP example"])
def test_the_mpi_example(run_example, cell, evidence):
    """mpirun starts a process for each host of the Trainer's hostfile; a script replaces ssh."""
    log = run_example(cell, "mpi_on_nodes")
    for rank in (0, 1):
        assert f"[launcher-0] process {rank} of 2: 3 points" in log
    [learned] = set(re.findall(r"y = ([\d.]+) x \+ (-[\d.]+), learned by 2 processes", log))
    assert [float(number) for number in learned] == pytest.approx([3, -1], abs=0.1)
    evidence("features", row="MPI", cell=cell)


@pytest.mark.parametrize("cell", ["Airflow example", "KFP example"])
def test_the_gang_example(run_example, client, plane, cell, evidence):
    """The Trainer creates one PodGroup for all pods. Without a gang scheduler, the test binds all pods at once."""
    before = {pod["metadata"]["uid"] for pod in client.list("Pod", plane.namespace)}
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_example, cell, "gang")

        def gang_pods():
            pods = [pod for pod in client.list("Pod", plane.namespace) if pod["metadata"]["uid"] not in before]
            return pods if len(pods) == 2 or running.done() else None

        pods = wait_until(gang_pods, 200)
        assert not running.done(), running.result()[-6000:]
        [group] = {pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] for pod in pods}
        assert client.request("GET", group_path("coscheduling", plane.namespace, group)).body["spec"]["minMember"] == 2
        assert not any(pod["spec"].get("nodeName") for pod in pods)
        for pod in pods:
            bind_pod(client, plane.namespace, pod["metadata"]["name"])
        log = running.result()
    for node in (0, 1):
        assert f"[node-{node}] node {node} of 2 starts" in log
    evidence("features", row="gang scheduling", cell=cell)


def bind_pod(client, namespace, name):
    """Bind a pod to the node, as a scheduler does."""
    [node] = client.list("Node", None)
    target = {"apiVersion": "v1", "kind": "Node", "name": node["metadata"]["name"]}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    answer = client.request("POST", path_of("Pod", namespace, name, "binding"), binding)
    assert answer.ok, answer.message
