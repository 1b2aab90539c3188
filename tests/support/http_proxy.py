"""HTTP proxy in front of a server, which may answer requests itself."""

from __future__ import annotations

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

import urllib3

from tests.support.loopback_server import LoopbackServer

__all__ = ["HttpProxy", "authorizing_proxy"]

Hook = Callable[[BaseHTTPRequestHandler, bool], int]


class HttpProxy(LoopbackServer):
    """Proxy that forwards requests; a context manager.

    `hook` gets each request twice: before the server does, and after it answered. A status that is not 0 is the answer.
    """

    def __init__(self, target: str, hook: Hook) -> None:
        super().__init__(type("Handler", (_Handler,), {"target": target, "hook": staticmethod(hook)}))


def authorizing_proxy(target: str, authorization: str) -> HttpProxy:
    """Return a proxy that forwards only requests with the right header Authorization."""
    return HttpProxy(target, lambda request, _: 0 if request.headers.get("Authorization") == authorization else 401)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    target: str
    hook: Hook

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if status := self.hook(self, False):
            return self._respond(status, b"refused by the proxy")
        headers = {"Content-Type": self.headers.get("Content-Type") or ""}
        answer = urllib3.request(self.command, f"{self.target}{self.path}", body=body, headers=headers, retries=False)
        if status := self.hook(self, True):
            return self._respond(status, b"refused by the proxy")
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
