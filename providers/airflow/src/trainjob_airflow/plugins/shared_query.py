"""Query results that many requests share.

A hundred open browsers then cause the same load on the cluster as one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from typing import Generic, TypeVar

from trainjob.threads import start_thread

T = TypeVar("T")

_MIN_TTL_SECONDS = 2.0
_MAX_TTL_SECONDS = 15.0
_MAX_WAIT_SECONDS = 3.0
_SLOW_QUERY_SECONDS = 0.5
MAX_AGE_SECONDS = 30.0
"""Age of a result from which it is outdated."""


class QueryRunning(Exception):
    """The first query has not ended yet, so there is no result and no error."""


class SharedQuery(Generic[T]):
    """Result of a slow query, which is repeated when it has expired and is requested.

    A separate thread runs the query, and only one query runs at a time. A request waits for the result, but at most 3 s
    after the start of the query, even if the server hangs. The waiting threads belong to Airflow's API server, which
    has few. The result of a slow query is kept for longer: ten times the query's duration, at least 2 s and at most 15
    s. If a slow query is repeated, requests get its earlier result at once until that is 30 s old.
    """

    def __init__(self, query: Callable[[], T], clock: Callable[[], float] = time.monotonic) -> None:
        """Create the object without running the query.

        Args:
            query: runs the query and returns its result; may block and raise.
            clock: returns monotonic seconds; for tests.
        """
        self._query, self._clock = query, clock
        self._lock = threading.Lock()
        self._running: Future[T] | None = None
        self._latest: Future[T] | None = None
        self._started_at = self._expires_at = self._outdated_at = 0.0
        self._newest: tuple[T, float] | None = None  # the newest result without an error, and its time

    @property
    def last_result(self) -> tuple[T, float] | None:
        """Newest result that was no error, and its age in seconds; None if there was none."""
        with self._lock:
            return (self._newest[0], self._clock() - self._newest[1]) if self._newest else None

    def get(self) -> T:
        """Return the newest result, at most 2 s old if the query is fast.

        Raises:
            OutOfThreads: no thread can be started for the query.
            QueryRunning: the first query has not ended in time. Its result or its error follows.
            Exception: the error that the query raised.
        """
        with self._lock:
            now = self._clock()
            if self._running is None and (self._latest is None or now >= self._expires_at):
                future = Future[T]()
                start_thread(self._run, future, name="trainjob-page")
                self._running, self._started_at = future, now
            running, latest = self._running, self._latest
            left = self._started_at + _MAX_WAIT_SECONDS - now
            is_recent = now < self._outdated_at
        if running is not None and not is_recent:
            wait([running], timeout=max(0.0, left))
            if running.done():
                return running.result()
        if latest is None:
            raise QueryRunning
        return latest.result()

    def _run(self, future: Future[T]) -> None:
        newest = None
        try:
            result = self._query()
            newest, deliver = (result, self._clock()), partial(future.set_result, result)
        except Exception as error:  # noqa: BLE001 - get() raises it
            deliver = partial(future.set_exception, error)
        with self._lock:
            now = self._clock()
            self._newest = newest or self._newest
            self._latest, self._running = future, None
            duration = now - self._started_at
            self._expires_at = now + min(_MAX_TTL_SECONDS, max(_MIN_TTL_SECONDS, 10 * duration))
            self._outdated_at = now + MAX_AGE_SECONDS if duration > _SLOW_QUERY_SECONDS else 0.0
            deliver()
