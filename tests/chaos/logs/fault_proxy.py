"""An HTTP proxy in front of an API server that injects faults into the requests of chosen TrainJobs.

It ends responses as Kubernetes 1.36.3 was observed to end them: if the connection to the kubelet breaks, or the kubelet
is killed, the API server ends the log with a complete, shorter response. This is so with and without `follow`, at the
end of a line and within one (`tests/e2e/controlplane/test_log_faults.py`).
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import urllib3

from tests.support.tcp_proxy import reset
from trainjob.status.pods import JOBSET_LABEL

PERMANENT = 1_000_000  # times, for a fault that does not end


@dataclass
class Fault:
    """A fault of the next requests of one kind.

    Attributes:
        kind: `status`: respond with a status code instead; `end`: end the response early as if it were complete;
            `line end`: the same, at the end of a line; `reset`: reset the connection; `close`: close it within a
            chunk; `silence`: send nothing more; `append`: send a text at the end.
        code: status code.
        after: number of bytes of the body to send before the fault.
        text: text to append.
        times: number of requests that have this fault.
    """

    kind: str
    code: int = 0
    after: int = 0
    text: bytes = b""
    times: int = 1


@dataclass
class JobFaults:
    """The faults of one TrainJob's requests, in order.

    Attributes:
        logs: faults of requests for logs.
        pod_lists: faults of lists of its pods.
        log_requests: number of requests for logs so far.
    """

    logs: list[Fault] = field(default_factory=list)
    pod_lists: list[Fault] = field(default_factory=list)
    log_requests: int = 0

    def next(self, faults: list[Fault]) -> Fault | None:
        """Return the fault of this request."""
        if not faults:
            return None
        faults[0].times -= 1
        return faults[0] if faults[0].times > 0 else faults.pop(0)


class FaultProxy(ThreadingHTTPServer):
    """A proxy to an API server; a context manager.

    Attributes:
        url: where the proxy listens.
        jobs: the faults by the name of the TrainJob.
        pods_delay: longest delay of a list or watch of all pods of the namespace, in seconds.
    """

    daemon_threads = True
    request_queue_size = 512

    def __init__(self, server: str, *, token: str = "", pool: Mapping[str, Any] | None = None) -> None:
        """Create a proxy.

        Args:
            server: URL of the API server.
            token: bearer token for the server.
            pool: arguments of `urllib3.PoolManager`, such as `ca_certs` and `cert_file`.
        """
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream, self.headers = server, {"Authorization": f"Bearer {token}"} if token else {}
        self.pool = urllib3.PoolManager(maxsize=64, **(pool or {}))
        self.jobs: dict[str, JobFaults] = {}
        self.pods_delay = 0.0
        self._closed = threading.Event()
        self.lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> FaultProxy:
        threading.Thread(target=self.serve_forever, name="fault proxy", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self.shutdown()
        self.server_close()
        self.pool.clear()

    def handle_error(self, *_: object) -> None:
        """Ignore clients that disconnect."""

    def next_fault(self, path: str) -> Fault | None:
        """Return the fault of a request, and count the request."""
        url = urlsplit(path)
        with self.lock:
            if url.path.endswith("/log"):
                pod = url.path.split("/")[-2]
                job = self.jobs.get(pod) or self.jobs.get(pod.partition("-node-")[0])
                if job is None:
                    return None
                job.log_requests += 1
                return job.next(job.logs)
            if url.path.endswith("/pods"):
                selector = parse_qs(url.query).get("labelSelector", [""])[0]
                job = self.jobs.get(selector.removeprefix(f"{JOBSET_LABEL}="))
                return job.next(job.pod_lists) if job else None
        return None

    def delay(self, path: str) -> None:
        """Delay a request for the pods of all TrainJobs."""
        url = urlsplit(path)
        selector = parse_qs(url.query).get("labelSelector", [""])[0]
        if url.path.endswith("/pods") and f"{JOBSET_LABEL}=" not in selector:
            self._closed.wait(self.pods_delay * random.random())  # noqa: S311 - any delay


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: FaultProxy

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))) or None
        self.server.delay(self.path)
        fault = self.server.next_fault(self.path)
        if fault and fault.kind == "status":
            return self._send_status(fault.code)
        with self._open(body) as response:
            if response.chunked:
                self._stream(response, fault)
            else:
                self._send(response.status, response.headers.get("Content-Type", ""), response.read())
        return None

    @contextlib.contextmanager
    def _open(self, body: bytes | None) -> Iterator[Any]:
        headers = {name: self.headers[name] for name in ("Content-Type", "Accept") if self.headers[name]}
        response = self.server.pool.request(
            self.command,
            self.server.upstream + self.path,
            body=body,
            headers={**headers, **self.server.headers},
            retries=False,
            preload_content=False,
        )
        try:
            yield response
        finally:
            response.close()

    def _send_status(self, code: int) -> None:
        reasons = {401: "Unauthorized", 403: "Forbidden", 429: "TooManyRequests", 500: "InternalError"}
        status = {"kind": "Status", "code": code, "reason": reasons[code], "message": f"injected {code}"}
        self._send(code, "application/json", json.dumps(status).encode())

    def _send(self, code: int, content_type: str, content: bytes) -> None:
        self.send_response(code)
        if code == 429:
            self.send_header("Retry-After", "1")
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, response: Any, fault: Fault | None) -> None:
        """Forward a response in chunks until its end, or until the fault."""
        self.send_response(response.status)
        self.send_header("Content-Type", response.headers.get("Content-Type", ""))
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        left = fault.after if fault and fault.kind != "append" else None
        try:
            for content in response.stream(1 << 16, decode_content=False):
                piece = content if left is None else content[: _cut(content, left, fault)]
                if piece:
                    self._send_chunk(piece)
                if left is not None and (left := left - len(piece)) <= 0:
                    break
        except (urllib3.exceptions.HTTPError, OSError):  # the server or the client has disconnected
            self.close_connection = True
            return
        if left is not None and left <= 0 and fault:
            self._break(fault)
            return
        if fault and fault.text:
            self._send_chunk(fault.text)
        self.wfile.write(b"0\r\n\r\n")

    def _send_chunk(self, content: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))

    def _break(self, fault: Fault) -> None:
        self.close_connection = True
        if fault.kind in ("end", "line end"):
            self.wfile.write(b"0\r\n\r\n")
            self.close_connection = False
        elif fault.kind == "reset":
            reset(self.connection)
        elif fault.kind == "close":
            self.wfile.write(b"100\r\n")
        elif fault.kind == "silence":
            self.connection.recv(1)  # until the client disconnects

    do_GET = do_POST = do_DELETE = do_PATCH = _handle  # noqa: N815 - as http.server calls them

    def log_message(self, *_: object) -> None:
        """Write no access log."""


def _cut(content: bytes, left: int, fault: Fault | None) -> int:
    """Return how many bytes of a piece to send if `left` bytes remain until the fault."""
    if fault is None or fault.kind != "line end" or left > len(content):
        return left
    return content.find(b"\n", max(0, left - 1)) + 1 or len(content)
