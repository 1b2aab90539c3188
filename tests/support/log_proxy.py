"""A proxy between log readers and a laptop cluster's API server.

It breaks streams after a chosen number of bytes.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.plain_port import plain_port
from tests.support.tcp_proxy import ProxiedConnection, TcpProxy, cut_after, reset
from trainjob.client import Connection
from trainjob_local import LocalCluster

_UNAUTHORIZED_STATUS = json.dumps(
    {"kind": "Status", "code": 401, "reason": "Unauthorized", "message": "Unauthorized"}
).encode()
_UNAUTHORIZED_RESPONSE = b"HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (
    len(_UNAUTHORIZED_STATUS),
    _UNAUTHORIZED_STATUS,
)
_LENGTH = b"content-length:"


class LogProxy(TcpProxy):
    """A proxy that forwards one request per connection; a context manager.

    Attributes:
        connection: a connection through the proxy.
        cut_after_bytes: number of bytes after which the responses to the next log requests break off, headers included;
            each number applies to one response.
        token: the accepted bearer token.
        forwarded_bytes: number of bytes of logs that were forwarded, or are about to be.
        log_requests: number of requests for logs.
        max_open_streams: maximum number of log streams that were open at the same time.
        refused_requests: number of requests with another token.
    """

    def __init__(self, laptop: LocalCluster, folder: Path) -> None:
        self._real_token, self.token, self._token_file = laptop.token, "first", folder / "token"
        self._cuts: dict[ProxiedConnection, int] = {}  # of the open log streams
        self.cut_after_bytes: list[int] = []
        self.forwarded_bytes = self.log_requests = self.max_open_streams = self.refused_requests = 0
        super().__init__(plain_port(laptop))
        self.write_token()
        self.connection = Connection(server=self.url, token_file=str(self._token_file), namespace="default")

    @property
    def open_streams(self) -> int:
        """The number of log streams that are open now."""
        return len(self._cuts)

    def reset_streams(self) -> None:
        """Reset the connections of all open log streams."""
        with self.lock:
            connections = list(self._cuts)
        for one in connections:
            reset(one.client)

    def rotate_token(self, token: str) -> None:
        """Accept only this token from now on; [write_token][] gives it to the clients."""
        self.token = token

    def write_token(self) -> None:
        """Write the accepted token to the token file of the connection."""
        self._token_file.write_text(self.token)

    def filter_requests(self, connection: ProxiedConnection, pieces: Iterator[bytes]) -> Iterator[bytes]:
        head, body = _read_request(pieces)
        if f"bearer {self.token}\r\n".encode() not in head.lower():
            connection.client.sendall(_UNAUTHORIZED_RESPONSE)
            with self.lock:
                self.refused_requests += bool(head)
            return
        if b"/log?" in head.partition(b"\r\n")[0]:
            with self.lock:
                self._cuts[connection] = self.cut_after_bytes.pop(0) if self.cut_after_bytes else sys.maxsize
                self.log_requests += 1
                self.max_open_streams = max(self.open_streams, self.max_open_streams)
        yield _with_real_token(head, self._real_token) + body
        yield from pieces  # wait for the end of the connection

    def filter_responses(self, connection: ProxiedConnection, pieces: Iterator[bytes]) -> Iterator[bytes]:
        pieces = itertools.chain([next(pieces, b"")], pieces)  # after the first piece, the request is known
        if connection not in self._cuts:
            yield from pieces
            return
        is_cut = yield from cut_after(self._count_bytes(pieces), self._cuts[connection])
        if is_cut and self.log_requests % 2:  # every second connection is closed properly instead
            reset(connection.client)
        with self.lock:
            del self._cuts[connection]

    def _count_bytes(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self.forwarded_bytes += len(piece)
            yield piece


def _read_request(pieces: Iterator[bytes]) -> tuple[bytes, bytes]:
    """Return head and body of a request; both are empty if the client has not sent all of it."""
    data = b""
    for piece in pieces:
        data += piece
        head, end, body = data.partition(b"\r\n\r\n")
        lengths = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(_LENGTH)]
        if end and len(body) >= sum(lengths):
            return head + end, body
    return b"", b""


def _with_real_token(head: bytes, token: str) -> bytes:
    """Return the request's head with the real token and without keep-alive."""
    kept = [
        line for line in head[:-4].split(b"\r\n") if not line.lower().startswith((b"authorization:", b"connection:"))
    ]
    more = [f"Authorization: Bearer {token}".encode(), b"Connection: close", b"", b""]
    return b"\r\n".join([*kept, *more])
