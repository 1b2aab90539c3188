"""A TCP proxy between a real API server and its kubelet, which breaks connections as a kubelet that dies does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from tests.support.tcp_proxy import ProxiedConnection, TcpProxy, cut_after, reset
from trainjob.client import Cluster

_NODE = "/api/v1/nodes/process-node"


class KubeletProxy(TcpProxy):
    """A proxy to a kubelet's port; a context manager.

    Attributes:
        cuts: each item is for one connection: after how many bytes of the kubelet it breaks, and whether by a reset.
            The connection is encrypted, so the bytes contain about 3 kB of the TLS handshake.
        broken: number of broken connections.
    """

    def __init__(self, kubelet_port: int) -> None:
        self.cuts: list[tuple[int, bool]] = []
        self.broken = 0
        super().__init__(("127.0.0.1", kubelet_port))

    def break_connections(self, random: Random, count: int, size: int) -> None:
        """Break each of the next `count` connections after up to `size` bytes.

        An API server uses a connection for many requests, so one that never breaks could serve them all.
        """
        self.cuts += [(random.randrange(2000, 2000 + size), random.random() < 0.5) for _ in range(count)]

    def filter_responses(self, connection: ProxiedConnection, pieces: Iterator[bytes]) -> Iterator[bytes]:
        count, by_reset = self.cuts.pop(0) if self.cuts else (sys.maxsize, False)
        if (yield from cut_after(pieces, count)):
            self.broken += 1
            if by_reset:
                reset(connection.client)


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
