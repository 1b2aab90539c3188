"""Tests of the process of a laptop cluster: its start, its end and its stored state."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from kubernetes.client.rest import ApiException

from tests.integration.local.cluster_client import ClusterClient, train_job
from tests.support.polling import wait_until
from trainjob.errors import ClusterError
from trainjob_local import LocalCluster

PARENT = """
import sys, time
from trainjob_local import LocalCluster
cluster = LocalCluster().start()
print(cluster.pid, cluster.kubeconfig, cluster.server, flush=True)
time.sleep(300)
"""


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def is_reachable(server: str) -> bool:
    host, port = server.removeprefix("https://").split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def start_sleeping_pod(kube: ClusterClient, name: str) -> int:
    """Start a pod that sleeps, and return its process ID."""
    kube.create_job(train_job(name, "sleep", "300"))
    kube.wait_for(name, lambda job: job.get("status", {}).get("jobsStatus", [{}])[0].get("ready"))
    return int(kube.get_pod(name).status.container_statuses[0].container_id.removeprefix("process://"))


def read_old_log(kube: ClusterClient, name: str) -> str:
    """Return the log of a pod from before the restart; empty until the kubelet knows the pod."""
    try:
        return kube.read_log(kube.get_pod(name).metadata.name)
    except ApiException as error:
        assert error.status == 404
        return ""


def test_a_stopped_cluster_leaves_nothing():
    with LocalCluster() as cluster:
        kube = ClusterClient(cluster.kubeconfig)
        pod = start_sleeping_pod(kube, "sleeper")
        kube.close()
        folder, server, pid = cluster.state, cluster.server, cluster.pid
        assert stat.S_IMODE(cluster.kubeconfig.stat().st_mode) == 0o600
        assert cluster.namespace == "default"
        assert cluster.start() is cluster
    assert not (is_alive(pid) or folder.exists() or is_reachable(server))
    wait_until(lambda: not is_alive(pod))
    cluster.stop()  # a second stop has no effect


@pytest.mark.parametrize("victim", ["parent", "cluster"])
def test_sigkill_leaves_nothing(victim):
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    text, kubeconfig, server = parent.stdout.readline().split()
    cluster, folder = int(text), Path(kubeconfig).parent
    kube = ClusterClient(Path(kubeconfig))
    pod = start_sleeping_pod(kube, "sleeper")
    os.kill(parent.pid if victim == "parent" else cluster, signal.SIGKILL)
    wait_until(lambda: not is_alive(pod) and not is_alive(cluster) and not folder.exists())
    assert not is_reachable(server)
    kube.close()
    parent.kill()
    parent.wait()
    parent.stdout.close()


def test_a_cluster_that_cannot_start_reports_the_reason(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ClusterError, match=f"can't listen on 127.0.0.1:{port}"):
            LocalCluster(tmp_path, port=port).start()


def test_a_state_folder_serves_one_cluster(tmp_path):
    with LocalCluster(tmp_path), pytest.raises(ClusterError, match="did not start"):
        LocalCluster(tmp_path).start()


def test_a_cluster_that_was_not_started_has_no_kubeconfig():
    with pytest.raises(ClusterError, match="not started"):
        LocalCluster().kubeconfig  # noqa: B018 - the property raises the error


def test_state_survives_a_restart(tmp_path):
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    with LocalCluster(tmp_path) as cluster:
        kube = ClusterClient(cluster.kubeconfig)
        server, token = cluster.server, cluster.token
        kube.core.create_namespaced_persistent_volume_claim("default", {"metadata": {"name": "w"}, "spec": claim})
        kube.create_job(train_job("done", "echo", "kept"))
        kube.wait_until_ended("done")
        kube.create_runtime("never", policy="Never", limit=0)
        kube.create_job(train_job("lost", "sleep", "300", runtime="never", kind="TrainingRuntime"))
        kube.wait_for("lost", lambda job: job.get("status", {}).get("jobsStatus", [{}])[0].get("ready"))
        script = 'if [ -e "$HOME/again" ]; then echo again; else touch "$HOME/again"; echo first; sleep 300; fi'
        kube.create_job(train_job("restarted", "sh", "-c", script))
        kube.wait_for("restarted", lambda job: job.get("status", {}).get("jobsStatus", [{}])[0].get("ready"))
        wait_until(lambda: kube.read_log(kube.get_pod("restarted").metadata.name) == "first\n")
        kube.close()
        os.kill(cluster.pid, signal.SIGKILL)
    with LocalCluster(tmp_path) as cluster:
        assert (cluster.server, cluster.token) == (server, token)
        kube = ClusterClient(cluster.kubeconfig)
        assert wait_until(lambda: read_old_log(kube, "done")) == "kept\n"
        assert kube.wait_until_ended("lost")["reason"] == "FailedJobs"
        end = kube.get_pod("lost").status.container_statuses[0].state.terminated
        assert (end.exit_code, end.reason) == (137, "ContainerStatusUnknown")
        assert kube.wait_until_ended("restarted")["type"] == "Complete"
        (status,) = kube.get_pod("restarted").status.container_statuses
        assert (status.restart_count, status.last_state.terminated.exit_code) == (1, 137)
        name = kube.get_pod("restarted").metadata.name
        assert (kube.read_log(name, previous=True), kube.read_log(name)) == ("first\n", "again\n")
        assert kube.core.read_namespaced_persistent_volume_claim("w", "default").status.phase == "Pending"
        kube.close()


def test_the_command_prints_the_kubeconfig_for_a_shell_and_ends_on_ctrl_c(tmp_path):
    state = tmp_path / "John's [state] folder"
    arguments = [sys.executable, "-c", "from trainjob.cli import main; main()", "local", "up", "--state", str(state)]
    command = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert command.stdout is not None
    lines = []
    for line in command.stdout:
        lines.append(line)
        if "Ctrl-C" in line:
            break
    command.send_signal(signal.SIGINT)
    assert command.wait(60) == 0
    command.stdout.close()
    [export] = [line for line in lines if line.startswith("  export KUBECONFIG=")]
    shell = subprocess.run(["sh", "-c", f'{export}printf %s "$KUBECONFIG"'], capture_output=True, text=True)
    assert shell.stdout == str(state / "kubeconfig"), shell.stderr


@pytest.mark.parametrize("option", ["--environment", "--pod-env"])
def test_a_pair_without_a_value_is_rejected(option):
    arguments = [sys.executable, "-c", "from trainjob.cli import main; main()", "local", "up", option, "secret"]
    ended = subprocess.run(arguments, capture_output=True, text=True)
    assert ended.returncode == 2
    assert f"{option} cannot be " in ended.stderr
    assert ("secret" in ended.stderr) == (option == "--environment")
