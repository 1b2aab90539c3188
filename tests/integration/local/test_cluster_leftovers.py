"""A laptop cluster that ends badly, or never gets up: no process, no port and no temporary folder is left."""

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
    """Processes, of those started below, whose environment names this folder."""
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
    """Where clusters without a state folder make theirs; all of it must be gone at the end."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield folder
    wait_until(lambda: find_processes(folder) - {os.getpid()} == set() and not any(folder.iterdir()))


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port on which somebody else listens."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def start_sleeping_pod(cluster: LocalCluster) -> int:
    """Start a pod whose process leaves its group, and return that process's ID."""
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
    """Whatever is half started then: the part that this moment hits differs from machine to machine."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        try:
            (cluster,) = wait_until(lambda: child_pids(parent.pid))
            time.sleep(after)  # not for anything to happen: the moment is what is tried
            os.kill(parent.pid if victim == "parent" else cluster, signal.SIGKILL)
            wait_until(lambda: not is_running(cluster))
            parent.stdout.readline()  # it had started, or has ended: who is left of the two clears up
        finally:
            parent.kill()


def test_the_parent_is_killed_at_the_first_moment(temporary_folder: Path) -> None:
    """When the process exists and nothing else has happened; looked for without a pause, to hit it."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.DEVNULL) as parent:
        deadline = time.monotonic() + 60
        while not child_pids(parent.pid):
            assert time.monotonic() < deadline
        parent.kill()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_the_cluster_is_told_to_end(temporary_folder: Path, how: signal.Signals) -> None:
    with LocalCluster() as cluster:
        pod = start_sleeping_pod(cluster)
        os.kill(cluster.pid, how)
        wait_until(lambda: not is_running(pod))
    assert not cluster.state.exists()


def test_an_error_of_the_parents_own(temporary_folder: Path) -> None:
    with pytest.raises(ZeroDivisionError), LocalCluster() as cluster:
        pod, process = start_sleeping_pod(cluster), cluster.pid
        raise ZeroDivisionError
    wait_until(lambda: not is_running(pod) and not is_running(process) and not cluster.state.exists())


def test_a_taken_port(temporary_folder: Path, taken_port: int) -> None:
    with pytest.raises(ClusterError, match=f"can't listen on 127.0.0.1:{taken_port}"):
        LocalCluster(port=taken_port).start()


def test_the_command_with_a_taken_port(temporary_folder: Path, taken_port: int, tmp_path: Path) -> None:
    """It ends by itself: no thread of what was started before keeps it alive."""
    state, options = tmp_path / "state", ["local", "up", "--port", str(taken_port)]
    command = [sys.executable, "-c", "from trainjob.cli import main; main()", *options, "--state", str(state)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert f"can't listen on 127.0.0.1:{taken_port}" in ended.stderr
    with LocalCluster(state):  # which nobody holds
        pass


@pytest.mark.parametrize(
    ("file", "said"), [("objects/objects.sqlite3", "is not a database"), ("port", "holds no port number")]
)
def test_a_state_that_cannot_be_read(temporary_folder: Path, tmp_path: Path, file: str, said: str) -> None:
    state = tmp_path / "state"
    with LocalCluster(state):
        pass
    victim = state / file
    victim.write_bytes(b"nonsense" * 2000)
    with pytest.raises(ClusterError, match=said) as raised:
        LocalCluster(state).start()
    assert "Traceback" not in str(raised.value)
    assert victim.read_bytes().startswith(b"nonsense")  # nothing of the user's is thrown away


def test_side_by_side(temporary_folder: Path) -> None:
    with LocalCluster() as first, LocalCluster() as second:
        pods = [start_sleeping_pod(cluster) for cluster in (first, second)]
        os.kill(first.pid, signal.SIGKILL)
        wait_until(lambda: not is_running(pods[0]))
        kube = ClusterClient(second.kubeconfig)
        kube.create_job(train_job("after", "echo", "hello"))
        assert kube.wait_until_ended("after")["type"] == "Complete"
        kube.close()
        assert is_running(pods[1])
