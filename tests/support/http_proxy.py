"""HTTP proxy in front of a server, whose subclasses answer requests themselves, or change them and their responses."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any

import urllib3

from tests.support.loopback_server import LoopbackServer

__all__ = ["HookedProxy", "HttpProxy", "ProxiedRequest", "authorizing_proxy"]

Hook = Callable[[BaseHTTPRequestHandler, bool], int]


class HttpProxy(LoopbackServer):
    """Proxy that forwards requests; a context manager.

    Args:
        target: URL of the server.
        pool: arguments of `urllib3.PoolManager`, such as `ca_certs` and `cert_file`.

    Attributes:
        headers: headers that each forwarded request gets, in place of the client's.
        clock_shift: seconds by which the clock in the header `Date` of the responses is fast.
    """

    request_queue_size = 512

    def __init__(self, target: str, *, pool: Mapping[str, Any] | None = None) -> None:
        self.target, self.headers, self.clock_shift = target, dict[str, str](), 0.0
        self.pool = urllib3.PoolManager(maxsize=64, **(pool or {}))
        super().__init__(ProxiedRequest)

    def stop(self) -> None:
        super().stop()
        self.pool.clear()

    def respond_to(self, request: ProxiedRequest) -> None:
        """Answer a request; here with the response of the server."""
        with request.forward() as response:
            request.relay(response)


class HookedProxy(HttpProxy):
    """Proxy that may answer requests itself.

    `hook` gets each request twice: before the server does, and after it answered. A status that is not 0 is the answer.
    """

    def __init__(self, target: str, hook: Hook) -> None:
        self._hook = hook
        super().__init__(target)

    def respond_to(self, request: ProxiedRequest) -> None:
        if status := self._hook(request, False):
            return request.respond(status, b"refused by the proxy")
        with request.forward() as response:
            body = response.read()
        if status := self._hook(request, True):
            return request.respond(status, b"refused by the proxy")
        return request.respond(response.status, body)


def authorizing_proxy(target: str, authorization: str) -> HttpProxy:
    """Return a proxy that forwards only requests with the right header Authorization."""
    return HookedProxy(target, lambda request, _: 0 if request.headers.get("Authorization") == authorization else 401)


class ProxiedRequest(BaseHTTPRequestHandler):
    """A request to the proxy.

    Attributes:
        body: body of the request.
    """

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: HttpProxy
    body: bytes

    def date_time_string(self, timestamp: float | None = None) -> str:
        """Return the value of the header `Date`."""
        return super().date_time_string((time.time() if timestamp is None else timestamp) + self.server.clock_shift)

    @contextlib.contextmanager
    def forward(self) -> Iterator[urllib3.BaseHTTPResponse]:
        """Send the request to the server, and yield the response before its body is read."""
        kept = {name: self.headers[name] for name in ("Accept", "Authorization", "Content-Type") if self.headers[name]}
        response = self.server.pool.request(
            self.command,
            self.server.target + self.path,
            body=self.body or None,
            headers={**kept, **self.server.headers},
            retries=False,
            preload_content=False,
        )
        try:
            yield response
        finally:
            response.close()

    def respond(self, status: int, body: bytes, content_type: str = "application/json") -> None:
        """Send a response to the client."""
        self.send_response(status)
        if status == 429:
            self.send_header("Retry-After", "1")
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def respond_with_error(self, status: int, reason: str) -> None:
        """Send the response of an API server that refuses the request."""
        content = {"kind": "Status", "code": status, "reason": reason, "message": reason}
        self.respond(status, json.dumps(content).encode())

    def relay(self, response: urllib3.BaseHTTPResponse, pieces: Iterable[bytes] | None = None) -> None:
        """Forward a response to the client.

        Args:
            response: response of the server.
            pieces: what to send instead of the body if the response has chunks. After an error in between, the client
                gets an incomplete response.
        """
        if not response.chunked:
            self.respond(response.status, response.read(), response.headers.get("Content-Type", ""))
            return
        self.send_response(response.status)
        self.send_header("Content-Type", response.headers.get("Content-Type", ""))
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for piece in filter(None, pieces or response.stream(1 << 16, decode_content=False)):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")
        except (urllib3.exceptions.HTTPError, OSError):  # the server or the client has disconnected
            self.close_connection = True

    def _handle(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.respond_to(self)

    do_GET = do_POST = do_PATCH = do_DELETE = _handle  # noqa: N815 - the library's names

    def log_message(self, *_: object) -> None:
        """Write no access log."""
