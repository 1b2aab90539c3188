"""A server on loopback that sends the same bytes to every connection."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


class CannedServer:
    """Server that sends `response` to each connection after its request, and closes it."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.response = b""
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                connection, _ = self._listener.accept()
                with connection, contextlib.suppress(OSError):
                    connection.settimeout(5.0)
                    request = b""
                    while b"\r\n\r\n" not in request and (chunk := connection.recv(65_536)):
                        request += chunk
                    connection.sendall(self.response)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(65_536):
                        pass

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextlib.contextmanager
def canned_server() -> Iterator[CannedServer]:
    """Serve until the block ends."""
    server = CannedServer()
    try:
        yield server
    finally:
        server.close()


def http_response(body: bytes, *, status: str = "200 OK", headers: tuple[str, ...] = ()) -> bytes:
    """Return an HTTP response with this body."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", errors="replace") + body
