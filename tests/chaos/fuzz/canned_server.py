"""A server on loopback that sends the same bytes to every connection."""

from __future__ import annotations

import contextlib
import socket
from socketserver import BaseRequestHandler

from tests.support.loopback_server import LoopbackServer


class CannedServer(LoopbackServer):
    """Server that sends `response` to each connection after its request, and closes it."""

    def __init__(self) -> None:
        self.response = b""
        super().__init__(_Connection)


class _Connection(BaseRequestHandler):
    server: CannedServer

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            self.request.settimeout(5.0)
            request = b""
            while b"\r\n\r\n" not in request and (chunk := self.request.recv(65_536)):
                request += chunk
            self.request.sendall(self.server.response)
            self.request.shutdown(socket.SHUT_WR)
            while self.request.recv(65_536):
                pass


def http_response(body: bytes, *, status: str = "200 OK", headers: tuple[str, ...] = ()) -> bytes:
    """Return an HTTP response with this body."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", errors="replace") + body
