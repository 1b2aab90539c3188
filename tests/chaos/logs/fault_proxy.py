"""An HTTP proxy in front of an API server that injects faults into the requests of chosen TrainJobs.

It ends responses as Kubernetes 1.36.3 was observed to end them: if the connection to the kubelet breaks, or the kubelet
is killed, the API server ends the log with a complete, shorter response. This is so with and without `follow`, at the
end of a line and within one (`tests/e2e/controlplane/test_log_faults.py`).
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.http_proxy import HttpProxy, ProxiedRequest
from tests.support.tcp_proxy import reset
from trainjob.status.pods import JOBSET_LABEL

PERMANENT = 1_000_000  # times, for a fault that does not end
_REASONS = {401: "Unauthorized", 403: "Forbidden", 429: "TooManyRequests", 500: "InternalError"}


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
    """

    logs: list[Fault] = field(default_factory=list)
    pod_lists: list[Fault] = field(default_factory=list)


class FaultProxy(HttpProxy):
    """A proxy to an API server; a context manager.

    Attributes:
        jobs: the faults by the name of the TrainJob.
        pods_delay: longest delay of a list or watch of all pods of the namespace, in seconds.
    """

    def __init__(self, server: str, *, token: str = "", pool: Mapping[str, Any] | None = None) -> None:
        """Create a proxy.

        Args:
            server: URL of the API server.
            token: bearer token for the server.
            pool: arguments of `urllib3.PoolManager`, such as `ca_certs` and `cert_file`.
        """
        self.jobs: dict[str, JobFaults] = {}
        self.pods_delay = 0.0
        self._closed, self._lock = threading.Event(), threading.Lock()
        super().__init__(server, pool=pool)
        if token:
            self.headers["Authorization"] = f"Bearer {token}"

    def stop(self) -> None:
        self._closed.set()
        super().stop()

    def respond_to(self, request: ProxiedRequest) -> None:
        fault = self._next_fault(request.path)
        if fault and fault.kind == "status":
            request.respond_with_error(fault.code, _REASONS[fault.code])
            return
        with request.forward() as response:
            pieces = response.stream(1 << 16, decode_content=False)
            request.relay(response, _until_fault(request, pieces, fault) if fault else pieces)

    def _next_fault(self, path: str) -> Fault | None:
        """Return the fault of a request; delay a request for the pods of all TrainJobs."""
        url, faults = urlsplit(path), list[Fault]()
        if url.path.endswith("/log"):
            pod = url.path.split("/")[-2]
            job = self.jobs.get(pod) or self.jobs.get(pod.partition("-node-")[0])
            faults = job.logs if job else faults
        elif url.path.endswith("/pods"):
            selector = parse_qs(url.query).get("labelSelector", [""])[0]
            if f"{JOBSET_LABEL}=" not in selector:
                self._closed.wait(self.pods_delay * random.random())  # noqa: S311 - any delay
            job = self.jobs.get(selector.removeprefix(f"{JOBSET_LABEL}="))
            faults = job.pod_lists if job else faults
        with self._lock:
            if not faults:
                return None
            faults[0].times -= 1
            return faults[0] if faults[0].times > 0 else faults.pop(0)


def _until_fault(request: ProxiedRequest, pieces: Iterable[bytes], fault: Fault) -> Iterator[bytes]:
    """Yield the pieces of a response until the fault, with the text to append."""
    if fault.kind == "append":
        yield from pieces
        yield fault.text
        return
    left = fault.after
    for piece in pieces:
        kept = piece[: _cut(piece, left, fault)]
        yield kept
        left -= len(kept)
        if left <= 0:
            break
    if left > 0 or fault.kind in ("end", "line end"):
        return
    if fault.kind == "reset":
        reset(request.connection)
    elif fault.kind == "close":
        request.wfile.write(b"100\r\n")
    elif fault.kind == "silence":
        request.connection.recv(1)  # until the client disconnects
    raise ConnectionError(f"injected {fault.kind}")


def _cut(content: bytes, left: int, fault: Fault) -> int:
    """Return how many bytes of a piece to send if `left` bytes remain until the fault."""
    if fault.kind != "line end" or left > len(content):
        return left
    return content.find(b"\n", max(0, left - 1)) + 1 or len(content)
