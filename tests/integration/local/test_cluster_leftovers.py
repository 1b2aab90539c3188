"""Tests that a killed laptop cluster, or one that does not start, leaves no process, port or folder."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.local.cluster_client import ClusterClient, train_job
from tests.support.polling import wait_until
from trainjob.errors import ClusterError
from trainjob_local import LocalCluster

PARENT = """
import sys, time
from trainjob.errors import ClusterError
from trainjob_local import LocalCluster
try:
    cluster = LocalCluster().start()
except ClusterError:
    sys.exit(3)
print("started", flush=True)
time.sleep(300)
"""


def find_processes(mark: Path) -> set[int]:
    """Return the processes whose environment names this folder."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(mark).encode() in (entry / "environ").read_bytes():
                found.add(int(entry.name))
    return found


def child_pids(pid: int) -> set[int]:
    with contextlib.suppress(OSError):
        return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
    return set()


@pytest.fixture
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Set the folder for temporary state folders; check at the end that it is empty."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield folder
    wait_until(lambda: find_processes(folder) - {os.getpid()} == set() and not any(folder.iterdir()))


@pytest.fixture
def taken_port() -> Iterator[int]:
    """Yield a port on which another socket listens."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def start_sleeping_pod(cluster: LocalCluster) -> int:
    """Start a pod with a process in its own session, and return that process's ID."""
    kube = ClusterClient(cluster.kubeconfig)
    kube.create_job(train_job("sleeper", "sh", "-c", "setsid sleep 300 & echo $!; wait"))
    kube.wait_for("sleeper", lambda job: job.get("status", {}).get("jobsStatus", [{}])[0].get("ready"))
    name = kube.get_pod("sleeper").metadata.name
    process = int(wait_until(lambda: kube.read_log(name)))
    kube.close()
    return process


def is_running(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.parametrize("victim", ["parent", "cluster"])
@pytest.mark.parametrize("after", [0.05, 0.3, 0.6])
def test_sigkill_while_it_starts(temporary_folder: Path, victim: str, after: float) -> None:
    """If the parent or the cluster is killed during the start, nothing remains.

    What has already started after `after` seconds differs from machine to machine.
    """
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        try:
            (cluster,) = wait_until(lambda: child_pids(parent.pid))
            time.sleep(after)  # the test does not wait for a condition: it kills at this moment
            os.kill(parent.pid if victim == "parent" else cluster, signal.SIGKILL)
            wait_until(lambda: not is_running(cluster))
            parent.stdout.readline()  # the cluster had started, or the parent has ended; the survivor cleans up
        finally:
            parent.kill()


def test_the_parent_is_killed_at_the_first_moment(temporary_folder: Path) -> None:
    """If the parent is killed as soon as the cluster's process exists, nothing remains.

    The test polls without a pause to hit this moment.
    """
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.DEVNULL) as parent:
        deadline = time.monotonic() + 60
        while not child_pids(parent.pid):
            assert time.monotonic() < deadline
        parent.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_the_cluster_and_its_pods(temporary_folder: Path, number: signal.Signals) -> None:
    with LocalCluster() as cluster:
        pod = start_sleeping_pod(cluster)
        os.kill(cluster.pid, number)
        wait_until(lambda: not is_running(pod))
    assert not cluster.state.exists()


def test_an_exception_in_the_with_block_ends_the_cluster(temporary_folder: Path) -> None:
    with pytest.raises(ZeroDivisionError), LocalCluster() as cluster:
        pod, process = start_sleeping_pod(cluster), cluster.pid
        raise ZeroDivisionError
    wait_until(lambda: not is_running(pod) and not is_running(process) and not cluster.state.exists())


def test_a_port_in_use_is_an_error(temporary_folder: Path, taken_port: int) -> None:
    with pytest.raises(ClusterError, match=f"can't listen on 127.0.0.1:{taken_port}"):
        LocalCluster(port=taken_port).start()


def test_the_command_ends_if_the_port_is_in_use(temporary_folder: Path, taken_port: int, tmp_path: Path) -> None:
    """The command ends by itself: no thread that it started before keeps it alive."""
    state, options = tmp_path / "state", ["local", "up", "--port", str(taken_port)]
    command = [sys.executable, "-c", "from trainjob.cli import main; main()", *options, "--state", str(state)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 1
    assert f"can't listen on 127.0.0.1:{taken_port}" in ended.stderr
    with LocalCluster(state):  # no process holds the state folder
        pass


@pytest.mark.parametrize(
    ("file", "said"), [("objects/objects.sqlite3", "is not a database"), ("port", "contains no port number")]
)
def test_a_damaged_state_is_an_error_and_stays_unchanged(
    temporary_folder: Path, tmp_path: Path, file: str, said: str
) -> None:
    state = tmp_path / "state"
    with LocalCluster(state):
        pass
    victim = state / file
    victim.write_bytes(b"nonsense" * 2000)
    with pytest.raises(ClusterError, match=said) as raised:
        LocalCluster(state).start()
    assert "Traceback" not in str(raised.value)
    assert victim.read_bytes().startswith(b"nonsense")  # the cluster discards no file of the user


def test_a_killed_cluster_does_not_affect_another(temporary_folder: Path) -> None:
    with LocalCluster() as first, LocalCluster() as second:
        pods = [start_sleeping_pod(cluster) for cluster in (first, second)]
        os.kill(first.pid, signal.SIGKILL)
        wait_until(lambda: not is_running(pods[0]))
        kube = ClusterClient(second.kubeconfig)
        kube.create_job(train_job("after", "echo", "hello"))
        assert kube.wait_until_ended("after")["type"] == "Complete"
        kube.close()
        assert is_running(pods[1])
