"""A TCP proxy in front of an API server that forwards everything and records the requests."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from tests.support.plain_port import forward_to
from tests.support.tcp_proxy import ProxiedConnection, TcpProxy

_REQUEST = re.compile(rb"^([A-Z]+) (/\S*) HTTP/1\.1\r$", re.MULTILINE)


class RecordingProxy(TcpProxy):
    """A proxy that forwards connections to the API server of a kubeconfig; a context manager.

    Attributes:
        requests: method and path of each request, in order.
        kubeconfig: text of a kubeconfig that points at the proxy.
    """

    def __init__(self, kubeconfig: str) -> None:
        config = json.loads(kubeconfig)
        cluster = config["clusters"][0]["cluster"]
        self.requests: list[str] = []
        super().__init__(forward_to(cluster["server"], cluster.get("certificate-authority", "")))
        cluster["server"] = self.url
        self.kubeconfig = json.dumps(config)

    def count_watches(self, plural: str) -> int:
        """Return how many watches of a kind of object were started."""
        return sum(f"/{plural}?" in line and "watch=true" in line for line in self.requests)

    def count_lists(self, plural: str) -> int:
        """Return how many lists of a kind were requested; the pages of one list count once."""
        return sum(f"/{plural}?" in line and not re.search("watch=|continue=", line) for line in self.requests)

    def filter_requests(self, connection: ProxiedConnection, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self.requests += [b" ".join(found.groups()).decode() for found in _REQUEST.finditer(piece)]
            yield piece
