"""Ports at which the pods of a distributed job meet, one for each JobSet.

The Trainer sets the same port for every job (Trainer 2.3: 29500), because each pod has a network of its own. Here all
pods share the network of this machine. An address of its own for each JobSet would not help, because torch's TCPStore
listens on all interfaces.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from trainjob_local.objects import Json

__all__ = ["TRAINER_PORT", "MasterPorts", "NoFreePort"]

TRAINER_PORT = 29500
"""Port that the Trainer sets for every job (Trainer 2.3 `pkg/constants/constants.go`)."""

_PORTS = range(TRAINER_PORT, 32768)  # below the ephemeral ports of Linux and macOS
_JOBSET_UID = "jobset.sigs.k8s.io/jobset-uid"


class NoFreePort(OSError):
    """Error for a range of ports in which none is free."""


@dataclass
class _Reservation:
    """A port, the socket that reserves it, and the UIDs of the pods that use it."""

    port: int
    socket: socket.socket
    pods: set[str] = field(default_factory=set)


class MasterPorts:
    """The ports of the JobSets that have pods on this node.

    All running pods of a JobSet have the same port. Two JobSets with running pods never have the same one, also if they
    belong to two clusters on this machine.

    Args:
        ports: the ports to choose from, the first free one first. The Trainer's own comes first, so a command that
            contains it works if the job is the only one.
    """

    def __init__(self, ports: Sequence[int] = _PORTS) -> None:
        self._ports = ports
        self._reservations: dict[str, _Reservation] = {}
        self._lock = threading.Lock()

    def acquire(self, pod: Json) -> int:
        """Return the port of the pod's JobSet, and reserve one if it has none.

        A pod without a JobSet keeps the Trainer's port.

        Raises:
            NoFreePort: no port is free.
        """
        jobset = _jobset_uid(pod)
        if not jobset:
            return TRAINER_PORT
        with self._lock:
            found = self._reservations.get(jobset)
            if found is None:
                found = self._reservations[jobset] = _reserve(self._ports)
            found.pods.add(pod["metadata"]["uid"])
            return found.port

    def release(self, pod: Json) -> None:
        """Release the port of the pod's JobSet if no other pod uses it."""
        jobset = _jobset_uid(pod)
        with self._lock:
            found = self._reservations.get(jobset)
            if found is None:
                return
            found.pods.discard(pod["metadata"]["uid"])
            if not found.pods:
                found.socket.close()
                del self._reservations[jobset]


def _jobset_uid(pod: Json) -> str:
    return str((pod["metadata"].get("labels") or {}).get(_JOBSET_UID, ""))


def _reserve(ports: Sequence[int]) -> _Reservation:
    for port in ports:
        reserved = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        # The pod's process listens minutes later. Until then the UDP port of the same number is the mark that other
        # kubelets of this machine see. The kernel removes it when the kubelet dies.
        try:
            reserved.bind(("127.0.0.1", port))
            _check_free(port)
        except OSError:
            reserved.close()
        else:
            return _Reservation(port, reserved)
    raise NoFreePort(f"no port from {ports[0]} to {ports[-1]} is free for a distributed job: end another program")


def _check_free(port: int) -> None:
    """Raise OSError if the port is in use, or was used within the last minute.

    XGBoost (3.0) refuses such a port, because it does not set SO_REUSEADDR.
    """
    with socket.socket() as probe:
        probe.bind(("", port))
