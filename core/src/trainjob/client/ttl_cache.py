"""Cache of one value that callers share for some seconds."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from trainjob.errors import TrainJobError

T = TypeVar("T")


class TtlCache(Generic[T]):
    """Cache of one value, which is read again when it is too old.

    Concurrent callers wait for the same read. Errors are cached, too: otherwise a failing server would keep each of
    thousands of callers waiting in turn.
    """

    def __init__(self, read: Callable[[], T], ttl: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Create an empty cache.

        Args:
            read: returns the value; may block.
            ttl: age in seconds at which the value is read again.
            clock: returns monotonic seconds; for tests.
        """
        self._read, self._ttl, self._clock = read, ttl, clock
        self._lock = threading.Lock()
        self._value: Future[T] = Future()
        self._expires_at = -math.inf

    def get(self) -> T:
        """Return the value; read it first if it is too old.

        Raises:
            TrainJobError: the read ended with this error.
        """
        with self._lock:
            if self._clock() > self._expires_at:
                self._value = Future()
                try:
                    self._value.set_result(self._read())
                except TrainJobError as error:
                    self._value.set_exception(error)
                self._expires_at = self._clock() + self._ttl
            return self._value.result()
