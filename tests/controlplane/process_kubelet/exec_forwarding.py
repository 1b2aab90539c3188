"""Commands in running isolated containers, as `kubectl exec` and Argo request them.

Another program beside the kubelet implements the streaming protocols (SPDY, WebSocket). It gets the connection, and a
command that enters the container.
"""

from __future__ import annotations

import json
import select
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path

from process_kubelet.isolation import enter_command

__all__ = ["CONTAINER_HEADER", "forward_exec"]

CONTAINER_HEADER = "X-Container"
"""Header with JSON: the command prefix that enters the container, and the file with the container's environment."""

_SIZE = 1 << 16
_CLOSE_SECONDS = 5.0


def forward_exec(
    connection: ssl.SSLSocket, request: str, headers: Sequence[tuple[str, str]], *, pid: int, exec_socket: Path
) -> None:
    """Forward a connection and its request, and return when either end has closed.

    Args:
        connection: connection of the kube-apiserver.
        request: the request line.
        headers: headers of the request; a header that occurs several times offers several protocols.
        pid: process ID of process 1 of the container.
        exec_socket: socket of the program that runs the command.

    Raises:
        OSError: the program does not run, or an end has broken off the connection.
    """
    entry = json.dumps({"prefix": enter_command(pid), "env": f"/proc/{pid}/environ"})
    # Our header comes first, because the first of two headers with the same name counts.
    lines = [request, f"{CONTAINER_HEADER}: {entry}", *(f"{name}: {value}" for name, value in headers)]
    with socket.socket(socket.AF_UNIX) as other:
        other.connect(str(exec_socket))
        other.sendall("".join(f"{line}\r\n" for line in [*lines, ""]).encode())
        _copy_both_ways(connection, other)


def _copy_both_ways(connection: ssl.SSLSocket, other: socket.socket) -> None:
    """Copy data in both directions until either end has closed."""
    while True:
        # select() does not report data that TLS has read already.
        ready = [connection] if connection.pending() else select.select([connection, other], [], [])[0]
        for one in ready:
            if data := one.recv(_SIZE):
                (other if one is connection else connection).sendall(data)
            else:
                return _close_gracefully(connection) if one is other else None


def _close_gracefully(connection: ssl.SSLSocket) -> None:
    """Shut down the connection and read the rest, because unread data would reset it."""
    connection.settimeout(_CLOSE_SECONDS)
    connection.shutdown(socket.SHUT_WR)
    while connection.recv(_SIZE):
        pass
