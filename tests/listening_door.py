"""A door in front of a cluster that hands everything through, watches too, and notes what is asked."""

from __future__ import annotations

import json
import re
import socket
import threading
from contextlib import closing
from urllib.parse import urlsplit

_REQUEST = re.compile(rb"^([A-Z]+) (/\S*) HTTP/1\.1\r$", re.MULTILINE)


class ListeningDoor:
    """The door; a context manager.

    Attributes:
        asked: each request's method and path, in order.
        kubeconfig: the text of one that leads through it.
    """

    def __init__(self, kubeconfig: str) -> None:
        config = json.loads(kubeconfig)
        where = urlsplit(config["clusters"][0]["cluster"]["server"])
        self._behind = (where.hostname, where.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        config["clusters"][0]["cluster"]["server"] = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.kubeconfig = json.dumps(config)
        self.asked: list[str] = []

    def __enter__(self) -> ListeningDoor:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def watches(self, plural: str) -> int:
        """How many watches of a kind of object were begun."""
        return sum(f"/{plural}?" in line and "watch=true" in line for line in self.asked)

    def lists(self, plural: str) -> int:
        """How many lists of it were asked for, however many pages each has."""
        return sum(f"/{plural}?" in line and not re.search("watch=|continue=", line) for line in self.asked)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            behind = socket.create_connection(self._behind)
            for source, target, note in ((client, behind, self._note), (behind, client, bytes)):
                threading.Thread(target=_pump, args=(source, target, note), daemon=True).start()

    def _note(self, sent: bytes) -> None:
        self.asked += [b" ".join(found.groups()).decode() for found in _REQUEST.finditer(sent)]


def _pump(source, target, note) -> None:
    with closing(source):
        try:
            while sent := source.recv(65536):
                note(sent)
                target.sendall(sent)
            target.shutdown(socket.SHUT_WR)
        except OSError:  # one of the two has gone
            pass
