"""Lists of the processes, ports and mounts of a control plane, to check that none is left."""

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

__all__ = [
    "all_ended",
    "find_command_lines",
    "is_alive",
    "list_mounts",
    "list_processes_and_ports",
    "open_client",
    "process_tree",
    "start_in_other_process",
]

_PARENT = """
import sys, time
from pathlib import Path
from control_plane import ControlPlane
cluster = ControlPlane(Path(sys.argv[1]), argo=bool(sys.argv[2])).start()
print("started", flush=True)
time.sleep(600)
"""


@contextlib.contextmanager
def start_in_other_process(state: Path, *, argo: bool = False) -> Iterator[tuple[ControlPlane, dict[str, int]]]:
    """Start a control plane in another process, and yield it with its process IDs.

    The IDs are those of the parent, of the supervisor and of the components.
    """
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", _PARENT, str(state), "argo" if argo else ""]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}) as parent:
        try:
            assert parent.stdout is not None
            assert parent.stdout.readline() == b"started\n"
            cluster = ControlPlane(state)  # not started here; it reads the other process's files
            yield cluster, {"parent": parent.pid, "supervisor": cluster.info["pid"], **cluster.info["pids"]}
        finally:
            parent.kill()


@contextlib.contextmanager
def open_client(cluster: ControlPlane) -> Iterator[Client]:
    with contextlib.closing(Client.from_kubeconfig(str(cluster.kubeconfig))) as client:
        yield client


def is_alive(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def process_tree(pid: int) -> set[int]:
    """Return a process and all its descendants."""
    found = {pid}
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a short command may end meanwhile
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found |= process_tree(int(child))
    return found


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def list_processes_and_ports(cluster: ControlPlane) -> tuple[set[int], list[int]]:
    """Return the processes and ports that must not outlive the control plane.

    Every component is one of the processes, and every port is in use.
    """
    # A descendant can be a short command of a pod, which ends by itself at any moment.
    processes = set(filter(is_alive, process_tree(cluster.info["pid"])))
    ports = list(cluster.info["ports"].values())
    assert set(cluster.info["pids"].values()) <= processes
    assert all(map(is_listening, ports))
    return processes, ports


def all_ended(processes: set[int], ports: list[int]) -> bool:
    return not any(map(is_alive, processes)) and not any(map(is_listening, ports))


def find_command_lines(folder: Path) -> list[str]:
    """Return the command lines of processes that contain a folder's path."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(file.read_text(errors="replace").replace("\0", " "))
    return [line for line in found if str(folder) in line]


def list_mounts() -> list[str]:
    """Return the mounts of this machine, as the tests see them."""
    return sorted(line.split(" ", 3)[3] for line in Path("/proc/self/mountinfo").read_text().splitlines())
