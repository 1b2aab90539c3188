"""A TCP proxy that delays one request.

The request reaches the API server later, even if its client is dead by then.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from pathlib import Path

from tests.support.plain_port import plain_port
from trainjob_local import LocalCluster


class HoldingProxy:
    """A proxy to a laptop cluster's API server; a context manager.

    Args:
        laptop: the cluster.
        text: text that only the request to hold contains.

    Attributes:
        held: set as soon as the request with the text has left its client.
    """

    def __init__(self, laptop: LocalCluster, text: str) -> None:
        self._target, self._kubeconfig, self._text = plain_port(laptop), laptop.kubeconfig, text.encode()
        self.held, self._released = threading.Event(), threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))

    def __enter__(self) -> HoldingProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def write_kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig that points at the proxy."""
        content = json.loads(self._kubeconfig.read_text())
        content["clusters"][0]["cluster"]["server"] = "http://{}:{}".format(*self._listener.getsockname())
        path.write_text(json.dumps(content))
        return path

    def release(self) -> None:
        """Let the request reach the API server."""
        self._released.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                threading.Thread(target=self._forward, args=(client, server), daemon=True).start()
                threading.Thread(target=self._forward_response, args=(server, client), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := client.recv(65536):
                if self._text in piece:
                    self.held.set()
                    self._released.wait(60)
                server.sendall(piece)
            server.shutdown(socket.SHUT_WR)

    def _forward_response(self, server: socket.socket, client: socket.socket) -> None:
        """Read the whole response, even if the client is dead."""
        with server, client:
            while piece := server.recv(65536):
                with contextlib.suppress(OSError):
                    client.sendall(piece)
