"""An answer that all who ask within some seconds share."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from trainjob.errors import TrainJobError

T = TypeVar("T")


class Recent(Generic[T]):
    """Asks when the last answer is too old; who asks meanwhile waits for that one.

    An error is an answer, too: else a server in trouble would keep each of thousands waiting in turn.
    """

    def __init__(self, ask: Callable[[], T], seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is asked yet.

        Args:
            ask: gives the answer; may block.
            seconds: how old an answer may be.
            clock: seconds, for tests.
        """
        self._ask, self._seconds, self._clock = ask, seconds, clock
        self._lock = threading.Lock()
        self._known: Future[T] = Future()
        self._end = -math.inf

    def get(self) -> T:
        """The last answer, or a new one.

        Raises:
            TrainJobError: the asking ended with it.
        """
        with self._lock:
            if self._clock() > self._end:
                self._known = Future()
                try:
                    self._known.set_result(self._ask())
                except TrainJobError as error:
                    self._known.set_exception(error)
                self._end = self._clock() + self._seconds
            return self._known.result()
