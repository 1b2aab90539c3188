"""The processes, ports and mounts of a control plane, and checks that none is left."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from control_plane import ControlPlane
from tests.support.kubernetes_client import Client

__all__ = ["about", "alive", "client_of", "family", "gone", "mounts", "started_by_another", "trail_of"]

_PARENT = """
import sys, time
from pathlib import Path
from control_plane import ControlPlane
cluster = ControlPlane(Path(sys.argv[1]), argo=bool(sys.argv[2])).start()
print("started", flush=True)
time.sleep(600)
"""


@contextlib.contextmanager
def started_by_another(state: Path, *, argo: bool = False) -> Iterator[tuple[ControlPlane, dict[str, int]]]:
    """Start a control plane in another process, and yield it with its process IDs.

    The IDs are those of the parent, of the supervisor and of the components.
    """
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", _PARENT, str(state), "argo" if argo else ""]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}) as parent:
        try:
            assert parent.stdout is not None
            assert parent.stdout.readline() == b"started\n"
            cluster = ControlPlane(state)  # not started here: its files have the rest of the information
            yield cluster, {"parent": parent.pid, "supervisor": cluster.info["pid"], **cluster.info["pids"]}
        finally:
            parent.kill()


@contextlib.contextmanager
def client_of(cluster: ControlPlane) -> Iterator[Client]:
    with contextlib.closing(Client.of(str(cluster.kubeconfig))) as client:
        yield client


def alive(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def family(pid: int) -> set[int]:
    """Return a process and all its descendants."""
    found = {pid}
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found |= family(int(child))
    return found


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def trail_of(cluster: ControlPlane) -> tuple[set[int], list[int]]:
    """Return the processes and ports that must not outlive the control plane.

    All of them are alive now.
    """
    processes, ports = family(cluster.info["pid"]), list(cluster.info["ports"].values())
    assert set(cluster.info["pids"].values()) <= processes
    assert all(map(alive, processes)) and all(map(listening, ports))
    return processes, ports


def gone(processes: set[int], ports: list[int]) -> bool:
    return not any(map(alive, processes)) and not any(map(listening, ports))


def about(folder: Path) -> list[str]:
    """Return the command lines of processes that contain a folder's path."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(file.read_text(errors="replace").replace("\0", " "))
    return [line for line in found if str(folder) in line]


def mounts() -> list[str]:
    """Return the mounts of this machine, as the tests see them."""
    return sorted(line.split(" ", 3)[3] for line in Path("/proc/self/mountinfo").read_text().splitlines())
