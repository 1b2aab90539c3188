"""HTTP proxy in front of a server, which requires a login."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler
from typing import Any

import urllib3

from tests.support.loopback_server import LoopbackServer

__all__ = ["AuthorizingProxy"]


class AuthorizingProxy:
    """Proxy that forwards requests with the right header Authorization; a context manager."""

    def __init__(self, target: str, authorization: str) -> None:
        self._handler = type("Handler", (_Handler,), {"target": target, "authorization": authorization})

    def __enter__(self) -> AuthorizingProxy:
        self._server = LoopbackServer(self._handler)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    @property
    def url(self) -> str:
        return self._server.url


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    target: str
    authorization: str

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Authorization") != self.authorization:
            return self._respond(401, b"You are not authenticated")
        headers = {"Content-Type": self.headers.get("Content-Type") or ""}
        answer = urllib3.request(self.command, f"{self.target}{self.path}", body=body, headers=headers, retries=False)
        return self._respond(answer.status, answer.data)

    def _respond(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PATCH = do_DELETE = _forward  # noqa: N815 - the library's names

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass
