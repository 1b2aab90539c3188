"""Read of the API server that a signal handler requests."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable

from trainjob.errors import TrainJobError
from trainjob.threads import start_thread

# A small part of the second that remains when a run is terminated. An API server responds within a few milliseconds.
_TIMEOUT_SECONDS = 0.15


class SignalRead:
    """A read that waits for its request on another thread.

    It needs a separate thread, because the signal may have interrupted the main thread while it used the connection.
    """

    def __init__(self, name: str, read: Callable[[], None]) -> None:
        """Create the read.

        Args:
            name: name of the thread.
            read: sends the request and records its result; it may raise a `TrainJobError`.
        """
        self._name, self._read = name, read
        self._requests: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._done = threading.Event()

    def start(self) -> None:
        """Start the thread.

        Raises:
            OutOfThreads: no thread can be started.
        """
        start_thread(self._read_on_request, name=self._name)

    def close(self) -> None:
        """End the thread."""
        self._requests.put(False)

    def run(self) -> None:
        """Read once, and wait up to 0.15 s until the read is done.

        It is safe to call this method in a signal handler.
        """
        self._requests.put(True)
        self._done.wait(_TIMEOUT_SECONDS)

    def _read_on_request(self) -> None:
        if self._requests.get():
            with contextlib.suppress(TrainJobError):
                self._read()
            self._done.set()
