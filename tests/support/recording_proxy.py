"""A TCP proxy in front of an API server that forwards everything and records the requests."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable
from contextlib import closing

from tests.support.plain_port import forward_to

_REQUEST = re.compile(rb"^([A-Z]+) (/\S*) HTTP/1\.1\r$", re.MULTILINE)


class RecordingProxy:
    """A proxy that forwards connections to the API server of a kubeconfig; a context manager.

    Attributes:
        requests: method and path of each request, in order.
        kubeconfig: text of a kubeconfig that points at the proxy.
    """

    def __init__(self, kubeconfig: str) -> None:
        config = json.loads(kubeconfig)
        cluster = config["clusters"][0]["cluster"]
        self._upstream = forward_to(cluster["server"], cluster.get("certificate-authority", ""))
        self._listener = socket.create_server(("127.0.0.1", 0))
        cluster["server"] = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.kubeconfig = json.dumps(config)
        self.requests: list[str] = []

    def __enter__(self) -> RecordingProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def count_watches(self, plural: str) -> int:
        """Return how many watches of a kind of object were started."""
        return sum(f"/{plural}?" in line and "watch=true" in line for line in self.requests)

    def count_lists(self, plural: str) -> int:
        """Return how many lists of a kind were requested; the pages of one list count once."""
        return sum(f"/{plural}?" in line and not re.search("watch=|continue=", line) for line in self.requests)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            upstream = socket.create_connection(self._upstream)
            for source, target, record in ((client, upstream, self._record), (upstream, client, bytes)):
                threading.Thread(target=_forward, args=(source, target, record), daemon=True).start()

    def _record(self, sent: bytes) -> None:
        self.requests += [b" ".join(found.groups()).decode() for found in _REQUEST.finditer(sent)]


def _forward(source: socket.socket, target: socket.socket, record: Callable[[bytes], object]) -> None:
    with closing(source):
        try:
            while sent := source.recv(65536):
                record(sent)
                target.sendall(sent)
            target.shutdown(socket.SHUT_WR)
        except OSError:  # one of the two sides has closed its connection
            pass
