"""Answers that many ask for and one gets: so that a hundred open browsers cost the cluster what one does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from typing import Generic, TypeVar

from trainjob.errors import ClusterUnreachable

T = TypeVar("T")

_FRESH_SECONDS = 2.0
_STALEST_SECONDS = 15.0
_PATIENCE_SECONDS = 3.0


class SharedAnswer(Generic[T]):
    """The answer to a question that takes a while, asked anew when it is old and somebody wants it.

    It is asked on a thread of its own, one at a time. Who wants the answer waits for it, but not for a server that
    hangs: the threads that wait belong to Airflow's API server, which has few. An answer that took long to get is kept
    for longer.
    """

    def __init__(self, ask: Callable[[], T], clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is asked yet.

        Args:
            ask: gets the answer; blocks, and may raise.
            clock: seconds, for tests.
        """
        self._ask, self._clock = ask, clock
        self._lock = threading.Lock()
        self._running: Future[T] | None = None
        self._latest: Future[T] | None = None
        self._began = self._due = 0.0

    def get(self) -> T:
        """The newest answer, 2 s old at most where it was got fast.

        Raises:
            ClusterUnreachable: there is none in time.
            Exception: what the question raised.
        """
        with self._lock:
            now = self._clock()
            if self._running is None and (self._latest is None or now >= self._due):
                self._running, self._began = Future(), now
                threading.Thread(target=self._run, args=(self._running,), name="trainjob-page", daemon=True).start()
            running, latest = self._running, self._latest
            left = self._began + _PATIENCE_SECONDS - now
        if running is not None:
            wait([running], timeout=max(0.0, left))
            if running.done():
                return running.result()
        if latest is None:
            raise ClusterUnreachable("the cluster has not answered yet")
        return latest.result()

    def _run(self, answer: Future[T]) -> None:
        try:
            tell = partial(answer.set_result, self._ask())
        except Exception as error:  # noqa: BLE001 - it is raised where the answer is wanted
            tell = partial(answer.set_exception, error)
        with self._lock:
            now = self._clock()
            self._latest, self._running = answer, None
            self._due = now + min(_STALEST_SECONDS, max(_FRESH_SECONDS, 10 * (now - self._began)))
            tell()
