"""A proxy between log readers and a laptop cluster's API server.

It breaks streams after a chosen number of bytes.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from pathlib import Path

from tests.support.plain_port import plain_port
from trainjob.client import Connection
from trainjob_local import LocalCluster

_UNAUTHORIZED_STATUS = json.dumps(
    {"kind": "Status", "code": 401, "reason": "Unauthorized", "message": "Unauthorized"}
).encode()
_UNAUTHORIZED_RESPONSE = b"HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (
    len(_UNAUTHORIZED_STATUS),
    _UNAUTHORIZED_STATUS,
)


class LogProxy:
    """A proxy that forwards one request per connection; a context manager.

    Attributes:
        connection: a connection through the proxy.
        cut_after_bytes: number of bytes after which the responses to the next log requests break off, headers included;
            each number applies to one response.
        token: the accepted bearer token.
        forwarded_bytes: number of bytes of logs that were forwarded, or are about to be.
        log_requests: number of requests for logs.
        open_streams: number of log streams that are open now.
        max_open_streams: maximum number of log streams that were open at the same time.
        refused_requests: number of requests with another token.
    """

    def __init__(self, laptop: LocalCluster, folder: Path) -> None:
        self._target, self._real_token = plain_port(laptop), laptop.token
        self.token, self._token_file = "first", folder / "token"
        self._lock = threading.Lock()
        self._clients: set[socket.socket] = set()
        self.cut_after_bytes: list[int] = []
        self.forwarded_bytes = self.log_requests = self.open_streams = self.max_open_streams = self.refused_requests = 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._token_file.write_text(self.token)
        url = "http://{}:{}".format(*self._listener.getsockname())
        self.connection = Connection(server=url, token_file=str(self._token_file), namespace="default")

    def __enter__(self) -> LogProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.reset_streams()

    def reset_streams(self) -> None:
        """Reset the connections of all open log streams."""
        with self._lock:
            clients, self._clients = self._clients, set()
        for one in clients:
            reset(one)

    def rotate_token(self, token: str) -> None:
        """Accept only this token from now on; [write_token][] gives it to the clients."""
        self.token = token

    def write_token(self) -> None:
        """Write the accepted token to the token file of the connection."""
        self._token_file.write_text(self.token)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """Forward one request, after which both connections are closed."""
        with contextlib.suppress(OSError), client:
            head, body = _read_request(client)
            if not head:
                return
            if f"bearer {self.token}\r\n".encode() not in head.lower():
                client.sendall(_UNAUTHORIZED_RESPONSE)
                with self._lock:
                    self.refused_requests += 1
                return
            with socket.create_connection(self._target) as server:
                server.sendall(_with_real_token(head, self._real_token) + body)
                if b"/log?" in head.partition(b"\r\n")[0]:
                    self._forward_log(server, client)
                else:
                    while data := server.recv(65536):
                        client.sendall(data)

    def _forward_log(self, server: socket.socket, client: socket.socket) -> None:
        with self._lock:
            left = self.cut_after_bytes.pop(0) if self.cut_after_bytes else None
            self._clients.add(client)
            self.log_requests += 1
            self.open_streams += 1
            self.max_open_streams = max(self.open_streams, self.max_open_streams)
        try:
            while data := server.recv(65536):
                self.forwarded_bytes += len(data)
                client.sendall(data if left is None else data[:left])
                if left is not None and (left := left - len(data)) <= 0:
                    if self.log_requests % 2:  # every second connection is closed properly instead
                        reset(client)
                    return
        finally:
            with self._lock:
                self._clients.discard(client)
                self.open_streams -= 1


def reset(client: socket.socket) -> None:
    """Close a socket so that the peer receives a RST."""
    with contextlib.suppress(OSError):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.shutdown(socket.SHUT_RD)
        client.close()


def _read_request(client: socket.socket) -> tuple[bytes, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        more = client.recv(65536)
        if not more:
            return b"", b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    head += b"\r\n\r\n"
    lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    while lengths and len(body) < int(lengths[0]):
        body += client.recv(65536)
    return head, body


def _with_real_token(head: bytes, token: str) -> bytes:
    """Return the request's head with the real token and without keep-alive."""
    kept = [
        line for line in head[:-4].split(b"\r\n") if not line.lower().startswith((b"authorization:", b"connection:"))
    ]
    more = [f"Authorization: Bearer {token}".encode(), b"Connection: close", b"", b""]
    return b"\r\n".join([*kept, *more])
