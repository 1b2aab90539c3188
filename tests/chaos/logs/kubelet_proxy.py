"""A TCP proxy between a real API server and its kubelet, which breaks connections as a kubelet that dies does."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from tests.support.log_proxy import reset
from trainjob.client import Cluster

_NODE = "/api/v1/nodes/process-node"


class KubeletProxy:
    """A proxy to a kubelet's port; a context manager.

    Attributes:
        port: port of the proxy.
        cuts: each item is for one connection: after how many bytes of the kubelet it breaks (-1 for never), and
            whether by a reset. The connection is encrypted, so the bytes contain about 3 kB of the TLS handshake.
        broken: number of broken connections.
    """

    def __init__(self, kubelet_port: int) -> None:
        self._kubelet_port = kubelet_port
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = int(self._listener.getsockname()[1])
        self.cuts: list[tuple[int, bool]] = []
        self.broken = 0

    def __enter__(self) -> KubeletProxy:
        threading.Thread(target=self._accept, name="kubelet proxy", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def break_connections(self, random: Random, count: int, size: int) -> None:
        """Break each of the next `count` connections after up to `size` bytes.

        An API server uses a connection for many requests, so one that never breaks could serve them all.
        """
        self.cuts += [(random.randrange(2000, 2000 + size), random.random() < 0.5) for _ in range(count)]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                kubelet = socket.create_connection(("127.0.0.1", self._kubelet_port))
                threading.Thread(target=self._forward_requests, args=(client, kubelet), daemon=True).start()
                threading.Thread(target=self._forward_responses, args=(kubelet, client), daemon=True).start()

    def _forward_requests(self, client: socket.socket, kubelet: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while content := client.recv(65536):
                kubelet.sendall(content)
            kubelet.shutdown(socket.SHUT_WR)

    def _forward_responses(self, kubelet: socket.socket, client: socket.socket) -> None:
        left, by_reset = self.cuts.pop(0) if self.cuts else (-1, False)
        with kubelet, client, contextlib.suppress(OSError):
            while content := kubelet.recv(65536):
                client.sendall(content if left < 0 else content[:left])
                if left >= 0 and (left := max(0, left - len(content))) == 0:
                    self.broken += 1
                    if by_reset:
                        reset(client)
                    break
            client.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxied_kubelet(cluster: Cluster) -> Iterator[KubeletProxy]:
    """Let the API server of a control plane connect to its kubelet through a proxy."""
    node = cluster._http.request("GET", _NODE, doing="get the node")
    port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    with KubeletProxy(port) as proxy:
        _set_port(cluster, proxy.port)
        try:
            yield proxy
        finally:
            _set_port(cluster, port)


def _set_port(cluster: Cluster, port: int) -> None:
    status = {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}}
    cluster._http.request("PATCH", f"{_NODE}/status", doing="change the kubelet's port", body=status)
