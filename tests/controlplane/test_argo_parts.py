"""Tests of Argo on the control plane: a Workflow runs, and nothing of it is left."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from control_plane import ControlPlane
from leftovers import (
    all_ended,
    list_mounts,
    list_processes_and_ports,
    open_client,
    process_tree,
    start_in_other_process,
)
from tests.support.kubernetes_client import Client, Object
from tests.support.polling import wait_until
from trainjob_local.images import Image


@pytest.fixture(autouse=True)
def argo_required():
    """Skip the test, with the reason, if Argo cannot run on this machine."""
    if reason := ControlPlane.unavailable_reason(argo=True):
        pytest.skip(reason)


def create_workflow(client: Client, script: str) -> None:
    """Create a Workflow of one pod, with the permissions that its executor needs."""
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": "default"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "executor"}
    rule = {"apiGroups": ["argoproj.io"], "resources": ["workflowtaskresults"], "verbs": ["create", "patch"]}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "executor"}}
    client.create({**role, "rules": [rule]}, "default")
    client.create({**role, "kind": "RoleBinding", "roleRef": reference, "subjects": [subject]}, "default")
    container = {"image": "busybox", "command": ["sh", "-c"], "args": [script]}
    workflow = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "one"}}
    templates = [{"name": "main", "container": container}]
    client.create({**workflow, "spec": {"entrypoint": "main", "templates": templates}}, "default")


def read_output(client: Client) -> list[str]:
    """Return the lines of the Workflow's script, without those of Argo's executor."""
    lines = client.log("default", "one", container="main").splitlines()
    return [line for line in lines if not line.startswith("time=")]


def is_main_running(pod: Object) -> bool:
    return "running" in main_status(pod).get("state", {})


def main_status(pod: Object) -> Object:
    return next((one for one in pod["status"].get("containerStatuses", []) if one["name"] == "main"), {})


def start_sleeping_pod(cluster: ControlPlane) -> int:
    """Start a Workflow whose process leaves its group; return its container's process ID."""
    with open_client(cluster) as client:
        create_workflow(client, "setsid sleep 600 & sleep 600")
        pod = client.wait_for("Pod", "default", "one", is_main_running)
    process = int(main_status(pod)["containerID"].removeprefix("process://"))
    wait_until(lambda: len(process_tree(process)) >= 5)  # unshare, argoexec, sh and both
    return process


def test_a_workflow_runs_isolated_and_leaves_nothing(tmp_path):
    """A Workflow's pod has its service account, its own processes and its own file changes."""
    before, mark = list_mounts(), f"/mark-of-{tmp_path.parent.name}"
    token = "/var/run/secrets/kubernetes.io/serviceaccount"
    # Each line is written at once, because the executor writes lines to the same log.
    script = f"echo $(cat {token}/namespace); touch {mark}; ls {mark}; cat /proc/[0-9]*/comm"
    with ControlPlane(tmp_path, argo=True) as cluster, open_client(cluster) as client:
        create_workflow(client, script)
        ended = ("Succeeded", "Failed", "Error")
        one = client.wait_for("Workflow", "default", "one", lambda one: one.get("status", {}).get("phase") in ended)
        assert one["status"]["phase"] == "Succeeded", one["status"]
        assert read_output(client) == ["default", mark, "argoexec", "sh"]
        trail = list_processes_and_ports(cluster)
        assert "argo" in cluster.info["pids"]
    assert all_ended(*trail)
    assert list_mounts() == before
    assert not Path(mark).exists()


def test_containers_have_the_given_images_and_host_names(tmp_path):
    """A given image replaces a default one, and given host names resolve beside those of this machine."""
    image = Image(match="busybox", environment=Path(sys.prefix), env={"REPLACED_BY": "the test"})
    hosts = {"store.kubeflow": "127.9.9.9"}
    with ControlPlane(tmp_path, argo=True, images=[image], hosts=hosts) as cluster, open_client(cluster) as client:
        create_workflow(client, "echo $REPLACED_BY; getent hosts store.kubeflow; getent ahostsv4 localhost")
        pod = client.wait_for(
            "Pod", "default", "one", lambda pod: pod["status"].get("phase") in ("Succeeded", "Failed")
        )
        assert pod["status"]["phase"] == "Succeeded", pod["status"]
        environment, store, localhost, *_ = read_output(client)
        assert environment == "the test"
        assert store.split() == ["127.9.9.9", "store.kubeflow"]
        assert localhost.split()[0] == "127.0.0.1"


def test_a_command_runs_in_a_container(tmp_path):
    """A command runs in a container through the API server, and its exit code comes back."""
    with ControlPlane(tmp_path, argo=True) as cluster, open_client(cluster) as client:
        create_workflow(client, "trap 'exit 0' TERM; echo here > /here; while :; do sleep 0.1; done")
        client.wait_for("Pod", "default", "one", is_main_running)
        wait_until(lambda: run_in_pod(cluster, "cat /here; echo $ARGO_CONTAINER_NAME; exit 7") == ("here\nmain\n", 7))


def run_in_pod(cluster: ControlPlane, script: str) -> tuple[str, int]:
    """Run a command in the Workflow's main container, and return its output and exit code."""
    from kubernetes import client, config
    from kubernetes.stream import stream

    with config.new_client_from_config(str(cluster.kubeconfig)) as api:
        words = {"container": "main", "command": ["sh", "-c", script], "stdout": True, "stderr": True}
        connect = client.CoreV1Api(api).connect_get_namespaced_pod_exec
        session = stream(connect, "one", "default", _preload_content=False, **words)
        session.run_forever(timeout=60)
        session.sock.shutdown()  # run_forever() leaves its socket open
        code = session.returncode  # first: read_all() forgets it
        return session.read_all(), code


@pytest.mark.parametrize("victim", ["parent", "supervisor", "argo", "kubelet"])
def test_sigkill_leaves_nothing(tmp_path, victim):
    before = list_mounts()
    with start_in_other_process(tmp_path / "state", argo=True) as (cluster, pids):
        pod = start_sleeping_pod(cluster)
        processes, ports = list_processes_and_ports(cluster)
        assert process_tree(pod) <= processes
        os.kill(pids[victim], signal.SIGKILL)
        wait_until(lambda: all_ended(processes, ports))
    assert list_mounts() == before
