"""How long to wait before asking again: exponential, jittered, capped; and what else a shared watch waits for."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from trainjob.errors import ClusterError, ServerUnavailable

T = TypeVar("T")


@dataclass
class Backoff:
    """Delays that double from `first` up to `longest` seconds, each shortened by up to half at random.

    A server's own `Retry-After` is the least, but `longest` is the most: it may say so again. The jitter keeps hundreds
    of waiters from asking a recovering server at the same instant.
    """

    first: float = 0.2
    longest: float = 30.0
    jitter: Callable[[], float] = field(default=random.random, repr=False)
    _failures: int = 0

    def next(self, error: Exception | None = None) -> float:
        """Seconds to wait now, after this error."""
        delay = min(self.longest, self.first * 2.0 ** min(self._failures, 16)) * (1 - 0.5 * self.jitter())
        self._failures += 1
        asked = error.retry_after if isinstance(error, ServerUnavailable) else None
        return max(delay, min(asked or 0.0, self.longest))

    def reset(self) -> None:
        """After a success the next failure starts from `first` again."""
        self._failures = 0


@dataclass(frozen=True)
class Pace:
    """How an informer spends its time, in seconds.

    Attributes:
        watch: after which the server ends a watch; below the idle limits of common load balancers.
        silence: how long a stream may be silent; an API server sends a bookmark about every 60 s when there is news of
            any kind (Kubernetes 1.36), and more silence may be a half-open connection.
        steady: a stream that lasted so long was a good one, so that the next trouble is the first again.
        poll: between lists where watching is not permitted.
        linger: how long the watch is kept for the next waiter when the last one has left.
        refused: how long a list that was permitted before may be refused.
        backoff: makes the pauses.
    """

    watch: int = 290
    silence: float = 90.0
    steady: float = 1.0
    poll: float = 5.0
    linger: float = 5.0
    refused: float = 60.0
    backoff: Callable[[], Backoff] = field(default=Backoff)


def persist(
    ask: Callable[[], T],
    *,
    patience: float = 60.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Ask until there is an answer, an error that trying again can't mend, or `patience` seconds are over.

    Only for requests that may be repeated: reads, deletes with a uid, merge patches.

    Raises:
        ClusterError: the last error.
    """
    backoff, deadline = Backoff(), clock() + patience
    while True:
        try:
            return ask()
        except ClusterError as error:
            delay = backoff.next(error)
            if not error.retryable or clock() + delay > deadline:
                raise
        sleep(delay)
