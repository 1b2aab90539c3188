"""A proxy in front of an API server that responds to chosen requests itself.

It forwards the others.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import urllib3

from trainjob_local import LocalCluster

_UNAUTHORIZED = b'{"kind": "Status", "code": 401, "reason": "Unauthorized", "message": "Unauthorized"}'


class ApiServerProxy(ThreadingHTTPServer):
    """An HTTP server that forwards to a laptop cluster's API server; a context manager.

    Attributes:
        responses: (status code, body) by path, or by method and path.
        replacements: bodies by method and path (`WATCH` is a method of its own). Each replaces the response to one
            request that the API server has executed, with status 200; later responses are the server's own.
        mutations: functions by method that change the body of a request with metadata in place, as a mutating
            admission policy does.
        request_counts: number of requests by method and path.
        accepted_tokens: bearer tokens that the proxy accepts, and replaces by the administrator's. It responds 401 to
            other ones. If it is None, the proxy forwards each token.
        refusals: number of responses 401 of the proxy.
        streams: the API server's responses to the watches that are open.
        clock_shift: seconds by which the clock in the header `Date` of the responses is fast.
        url: where the proxy listens.
        kubeconfig_text: the laptop cluster's kubeconfig, with the proxy as its server.
    """

    daemon_threads = True

    def __init__(self, laptop: LocalCluster) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream, self.ca_file = laptop.server, str(laptop.ca_file)
        self.responses: dict[str, tuple[int, bytes]] = {}
        self.replacements: dict[str, list[bytes]] = {}
        self.mutations: dict[str, Callable[[dict[str, Any]], None]] = {}
        self.request_counts: Counter[str] = Counter()
        self.accepted_tokens: set[str] | None = None
        self.refusals = 0
        self.streams: set[Any] = set()
        self.clock_shift = 0.0
        self.url = f"http://127.0.0.1:{self.server_port}"
        kubeconfig = json.loads(laptop.kubeconfig.read_text())
        self.admin_token = kubeconfig["users"][0]["user"]["token"]
        kubeconfig["clusters"][0]["cluster"] = {"server": self.url}
        self.kubeconfig_text = json.dumps(kubeconfig)

    def __enter__(self) -> ApiServerProxy:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()

    def end_streams(self) -> None:
        """End the open watches.

        An API server does so after some minutes, also if their token has expired.
        """
        for stream in list(self.streams):
            stream.shutdown()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ApiServerProxy

    def date_time_string(self, timestamp: float | None = None) -> str:
        """Return the value of the header `Date`."""
        return super().date_time_string((time.time() if timestamp is None else timestamp) + self.server.clock_shift)

    def _handle(self) -> None:
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))) or None
        request = f"{'WATCH' if 'watch=true' in query else self.command} {path}"
        self.server.request_counts[request] += 1
        if not self._accept_token():
            return
        if body and self.command in self.server.mutations:
            content = json.loads(body)
            self.server.mutations[self.command](content)
            body = json.dumps(content).encode()
        responses, replaced = self.server.responses, self.server.replacements.get(request)
        if request.startswith("WATCH") and not replaced:
            self._stream()
            return
        code, answer = responses.get(request) or responses.get(path) or self._forward(request, body)
        if replaced:
            code, answer = 200, replaced.pop(0)
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _accept_token(self) -> bool:
        accepted = self.server.accepted_tokens
        if accepted is None or self.headers["Authorization"] in {f"Bearer {token}" for token in accepted}:
            return True
        self.server.refusals += 1
        self.send_response(401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(_UNAUTHORIZED)))
        self.end_headers()
        self.wfile.write(_UNAUTHORIZED)
        return False

    def _forward(self, request: str, body: bytes | None) -> tuple[int, bytes]:
        if request.startswith("WATCH"):
            return 200, b""
        with self._open(body) as response:
            return response.status, response.read()

    def _stream(self) -> None:
        """Forward a watch, line by line, until either side ends it."""
        with self._open(None) as response:
            self.send_response(response.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Connection", "close")
            self.end_headers()
            self.server.streams.add(response)
            with contextlib.suppress(OSError):
                while piece := response.read1():
                    self.wfile.write(piece)
            self.server.streams.discard(response)

    @contextlib.contextmanager
    def _open(self, body: bytes | None) -> Iterator[Any]:
        headers = {name: self.headers[name] for name in ("Authorization", "Content-Type") if self.headers[name]}
        if self.server.accepted_tokens is not None:
            headers["Authorization"] = f"Bearer {self.server.admin_token}"
        with urllib3.PoolManager(ca_certs=self.server.ca_file) as pool:
            yield pool.request(
                self.command,
                self.server.upstream + self.path,
                body=body,
                headers=headers,
                retries=False,
                preload_content=False,
            )

    do_GET = do_POST = do_DELETE = do_PATCH = _handle  # noqa: N815 - as http.server calls them

    def log_message(self, *_: object) -> None:
        """Write no access log."""
