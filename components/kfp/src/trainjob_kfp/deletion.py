"""Immediate deletion of one TrainJob on connections that are already open.

The request is repeated if the creation of the TrainJob is still in progress.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainjob.client import Cluster, Connection
from trainjob.errors import ClusterError, OutOfThreads, TrainJobError
from trainjob.lifecycle import JobReference, cancel
from trainjob.lifecycle.queues import get_with_timeout
from trainjob.threads import start_thread

_THREADS = 3
_REQUEST_ERRORS = (TrainJobError, ValueError)  # ValueError: the page of a proxy in place of JSON
# Seconds from the signal to each request. If the TrainJob exists, the first request is enough; the others are for a
# connection that hangs. If its creation is in progress, requests are repeated for as long as the creation may take. The
# API server drops a request whose client dies before it is processed (kube-apiserver 1.36, about 5 ms). Therefore there
# are several early requests.
_ATTEMPT_SECONDS = (0.0, 0.5, 1.0, 1.5, 2.0)
_ATTEMPT_SECONDS_DURING_CREATION = (0.0, 0.02, 0.05, 0.1, 0.2, *(0.4 + 0.5 * n for n in range(60)))


@dataclass
class DeletionRequest:
    """Request to delete one TrainJob, sent several times until it has an effect.

    Attributes:
        name: name of the TrainJob.
        namespace: namespace of the TrainJob.
        reference: the TrainJob. None while its creation is in progress; then the request is repeated until it exists.
        on_result: receives the result as text; called on another thread, possibly more than once.
        find_known: returns the TrainJob as the watch has last reported it, so that the first request can be the
            deletion; None if it is not known.
    """

    name: str
    namespace: str
    reference: JobReference | None
    on_result: Callable[[str], None]
    find_known: Callable[[], Mapping[str, Any] | None] = lambda: None
    _started_at: float = field(default_factory=time.monotonic)
    _last_error: str = "its creation has not taken effect yet"

    def __post_init__(self) -> None:
        self._attempt_times: Iterator[float] = iter(
            _ATTEMPT_SECONDS_DURING_CREATION if self.reference is None else _ATTEMPT_SECONDS
        )
        self._lock = threading.Lock()

    def seconds_to_next_attempt(self) -> float | None:
        """Return the seconds until the next attempt is due; None if no attempt is left.

        All threads share one schedule: each attempt is returned once, to the thread that calls first.
        """
        with self._lock:
            moment = next(self._attempt_times, None)
        return None if moment is None else max(0.0, self._started_at + moment - time.monotonic())

    def send(self, cluster: Cluster) -> None:
        """Send one request, and report its result unless another attempt may succeed."""
        try:
            if self.reference is not None:
                self.on_result(cancel(cluster, self.reference, known=self.find_known()).text.removeprefix("it "))
            elif cluster.delete_trainjob(self.name, self.namespace, None):
                self.on_result("was deleted")
        except _REQUEST_ERRORS as error:
            self._last_error = str(error)
            if isinstance(error, ClusterError) and not error.retryable:
                self.report_failure()

    def report_failure(self) -> None:
        """Report that the TrainJob could not be deleted, because no attempt is left."""
        self.on_result(f"could not be deleted: {self._last_error}")


class DeletionThreads:
    """Threads that each keep a connection open until they get a [DeletionRequest][].

    The connections are separate, because the thread that submits the request may have been interrupted while it used
    another one. There are several, because a response takes time, and a creation may take effect between two requests.
    """

    def __init__(self, connection: Connection, keepalive_seconds: float) -> None:
        """Open the connections in the background.

        Args:
            connection: how to reach the cluster.
            keepalive_seconds: interval at which open connections are used, so that they are not closed as idle.

        Raises:
            NoClusterConfigured: there is no cluster to connect to.
            OutOfThreads: no thread can be started; with one of them, a deletion is possible.
        """
        self._keepalive_seconds = keepalive_seconds
        self._queues: list[queue.SimpleQueue[DeletionRequest | None]] = []
        for number in range(_THREADS):
            requests: queue.SimpleQueue[DeletionRequest | None] = queue.SimpleQueue()
            try:
                start_thread(self._run, Cluster(connection, retry_seconds=0.0), requests, name=f"deleter-{number}")
            except OutOfThreads:
                if not self._queues:
                    raise
            else:
                self._queues.append(requests)

    def submit(self, request: DeletionRequest) -> None:
        """Start to process a request, and drop an earlier one.

        It is safe to call this method in a signal handler.
        """
        for requests in self._queues:
            requests.put(request)

    def close(self) -> None:
        """Close the connections in the background."""
        for requests in self._queues:
            requests.put(None)

    def _run(self, cluster: Cluster, requests: queue.SimpleQueue[DeletionRequest | None]) -> None:
        request: DeletionRequest | None = None
        pause = 0.0
        while True:
            try:
                request = get_with_timeout(requests, pause)
                if request is None:
                    cluster.close()
                    return
            except queue.Empty:
                self._send_or_keep_alive(cluster, request)
            pause, request = self._next_attempt(request)

    def _send_or_keep_alive(self, cluster: Cluster, request: DeletionRequest | None) -> None:
        if request is not None:
            request.send(cluster)
        else:
            with contextlib.suppress(*_REQUEST_ERRORS):
                cluster.open_connection()

    def _next_attempt(self, request: DeletionRequest | None) -> tuple[float, DeletionRequest | None]:
        if request is None:
            return self._keepalive_seconds, None
        pause = request.seconds_to_next_attempt()
        if pause is None:
            request.report_failure()
            return self._keepalive_seconds, None
        return pause, request
