"""A TCP proxy, whose subclasses record, change, delay or cut what passes through it."""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import threading
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass

from typing_extensions import Self

__all__ = ["ProxiedConnection", "TcpProxy", "cut_after", "delayed", "reset"]


@dataclass(frozen=True, eq=False)
class ProxiedConnection:
    """The sockets of one connection: to the client and to the server."""

    client: socket.socket
    server: socket.socket

    def shut_down(self) -> None:
        """End both directions of both sockets."""
        for each in (self.client, self.server):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class TcpProxy:
    """A proxy that forwards connections from its construction on; a context manager.

    A client that dies does not change what the server gets and sends: the proxy delivers the bytes that the client has
    sent, and reads the response to its end. If the server closes a connection, the proxy closes it for the client, too.

    Args:
        target: host and port of the server.

    Attributes:
        port: where the proxy listens on loopback.
        url: its URL for plain HTTP.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self._target, self._address = target, ("127.0.0.1", 0)
        self._connections: set[ProxiedConnection] = set()
        self.lock = threading.Lock()
        self.start_listening()
        self.port = self._address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    def start_listening(self) -> None:
        """Listen, again at the same address after [disconnect][]."""
        self._listener = socket.create_server(self._address, backlog=512)
        self._address = self._listener.getsockname()
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def disconnect(self) -> None:
        """Refuse new connections and close the open ones."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.close_connections()

    def close_connections(self) -> None:
        """Close the open connections."""
        with self.lock:
            connections = list(self._connections)
        for each in connections:
            each.shut_down()

    def filter_requests(self, connection: ProxiedConnection, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yield what to send to the server for the pieces that a client sends."""
        yield from pieces

    def filter_responses(self, connection: ProxiedConnection, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yield what to send to the client for the pieces that the server sends."""
        yield from pieces

    def serve(self, client: socket.socket) -> None:
        """Forward one connection until it ends."""
        with client, contextlib.suppress(OSError), socket.create_connection(self._target) as server:
            connection = ProxiedConnection(client, server)
            with self.lock:
                self._connections.add(connection)
            sender = threading.Thread(target=self._send_requests, args=(connection,), daemon=True)
            sender.start()
            for piece in self.filter_responses(connection, _receive(server)):
                with contextlib.suppress(OSError):  # the client is dead
                    client.sendall(piece)
            connection.shut_down()
            sender.join()
            with self.lock:
                self._connections.discard(connection)

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def _send_requests(self, connection: ProxiedConnection) -> None:
        with contextlib.suppress(OSError):
            for piece in self.filter_requests(connection, _receive(connection.client)):
                connection.server.sendall(piece)
        with contextlib.suppress(OSError):
            connection.server.shutdown(socket.SHUT_WR)


def _receive(source: socket.socket) -> Iterator[bytes]:
    with contextlib.suppress(OSError):
        while piece := source.recv(65536):
            yield piece


def cut_after(pieces: Iterable[bytes], count: int) -> Generator[bytes, None, bool]:
    """Yield the first bytes, and return whether there were as many as `count`."""
    for piece in pieces:
        yield piece[:count]
        count -= len(piece)
        if count <= 0:
            return True
    return False


def delayed(pieces: Iterable[bytes], seconds: float) -> Iterator[bytes]:
    """Yield each piece and the end after the same delay, which does not slow down the reading."""
    read: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

    def read_all() -> None:
        for piece in pieces:
            read.put((time.monotonic() + seconds, piece))
        read.put((time.monotonic() + seconds, b""))

    threading.Thread(target=read_all, daemon=True).start()
    while True:
        due, piece = read.get()
        time.sleep(max(0.0, due - time.monotonic()))
        if not piece:
            return
        yield piece


def reset(client: socket.socket) -> None:
    """Close a socket so that the peer receives a RST."""
    with contextlib.suppress(OSError):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.shutdown(socket.SHUT_RD)
        client.close()
