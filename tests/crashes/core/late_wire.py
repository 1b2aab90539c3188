"""A network on which one request is late: what a dead client has sent still arrives, but only when the test says so."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from urllib.parse import urlsplit


class LateWire:
    """Passes connections on to a laptop cluster's API server; a context manager.

    Attributes:
        left: set when the request with the mark has left its client.
    """

    def __init__(self, laptop, mark):
        address = urlsplit(laptop.server)
        self._target, self._kubeconfig, self._mark = (address.hostname, address.port), laptop.kubeconfig, mark.encode()
        self.left, self._arrives = threading.Event(), threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.arrive()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def kubeconfig(self, path):
        """Write a kubeconfig that leads through here."""
        content = json.loads(self._kubeconfig.read_text())
        content["clusters"][0]["cluster"]["server"] = "http://{}:{}".format(*self._listener.getsockname())
        path.write_text(json.dumps(content))
        return path

    def arrive(self):
        """The request reaches the API server."""
        self._arrives.set()

    def _accept(self):
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                threading.Thread(target=self._there, args=(client, server), daemon=True).start()
                threading.Thread(target=self._back, args=(server, client), daemon=True).start()

    def _there(self, client, server):
        with contextlib.suppress(OSError):
            while piece := client.recv(65536):
                if self._mark in piece:
                    self.left.set()
                    self._arrives.wait(60)
                server.sendall(piece)
            server.shutdown(socket.SHUT_WR)

    def _back(self, server, client):
        """Until the API server has said all, whoever hears it."""
        with server, client:
            while piece := server.recv(65536):
                with contextlib.suppress(OSError):
                    client.sendall(piece)
