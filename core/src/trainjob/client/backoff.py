"""Pauses between retries, and the time limits of an informer.

The pauses grow exponentially up to a limit, with jitter.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from trainjob.errors import ClusterError, CredentialPluginFailed, Unauthorized, WrongCluster

T = TypeVar("T")

JITTER = random.SystemRandom()
"""Random numbers that no `random.seed` of a training's or DAG's code repeats, and that differ in forked processes."""


@dataclass
class Backoff:
    """Delays that double from `initial_delay` up to `max_delay` seconds, with random jitter.

    The jitter shortens each delay by up to half. It keeps hundreds of waiters from sending requests to a recovering
    server at the same instant.

    A delay is at least the server's `Retry-After`, but at most `max_delay`. A server that needs more time can
    send `Retry-After` again.
    """

    initial_delay: float = 0.2
    max_delay: float = 30.0
    jitter: Callable[[], float] = field(default=JITTER.random, repr=False)
    _failures: int = 0

    def next(self, error: Exception | None = None) -> float:
        """Return the seconds to wait before the next attempt.

        Args:
            error: error of the last attempt; its `Retry-After` counts.
        """
        delay = min(self.max_delay, self.initial_delay * 2.0 ** min(self._failures, 16)) * (1 - 0.5 * self.jitter())
        self._failures += 1
        retry_after = error.retry_after if isinstance(error, ClusterError) else None
        return max(delay, min(retry_after or 0.0, self.max_delay))

    def reset(self) -> None:
        """Start again from `initial_delay`, because a request has succeeded."""
        self._failures = 0


def pod_watch_backoff() -> Backoff:
    """Return the delays before a failed watch of pods begins again.

    Its informer has retried for a minute by then.
    """
    return Backoff(initial_delay=60.0, max_delay=300.0)


@dataclass(frozen=True)
class InformerTimings:
    """Time limits and pauses of an informer, in seconds.

    Attributes:
        watch_timeout: time after which the server ends a watch; below the idle limits of common load balancers.
        max_silence: longest silence of a stream. An API server sends a bookmark about every 60 s if there are changes
            of any kind (Kubernetes 1.36). So a longer silence may be a half-open connection.
        stable_after: duration after which a stream counts as successful, so that the backoff starts from the beginning.
        poll_interval: pause between lists if watching is not permitted.
        stop_delay: time for which the watch is kept after the last handler was removed.
        refusal_timeout: time for which a refused list is repeated if an earlier list succeeded, or if the credentials
            worked before.
        relist_interval: mean time between two lists, so that no lost event is lost for ever. Each interval differs by
            up to half, so that the informers of many processes do not list at the same instant.
        outage: silence after which a failed watch may have lost events, for example because the etcd of the API server
            was restored. The informer lists this long after the watch has resumed and delivered what it missed.
        backoff: function that creates the backoff of the pauses.
    """

    watch_timeout: int = 290
    max_silence: float = 90.0
    stable_after: float = 1.0
    poll_interval: float = 5.0
    stop_delay: float = 5.0
    refusal_timeout: float = 60.0
    relist_interval: float = 20 * 60.0
    outage: float = 5.0
    backoff: Callable[[], Backoff] = field(default=Backoff)


def is_temporary(error: ClusterError) -> bool:
    """Return whether the same request may succeed within a minute.

    A 401 of credentials that never worked is not temporary: the connection is probably wrong, and its user should learn
    that at once. The same holds for a connection to another cluster.
    """
    if isinstance(error, CredentialPluginFailed):
        return True
    is_wrong_connection = isinstance(error, WrongCluster) or (
        isinstance(error, Unauthorized) and not error.worked_before
    )
    return error.retryable and not is_wrong_connection


def retry(
    request: Callable[[], T],
    *,
    timeout: float = 60.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Repeat a request while its error is temporary, for up to `timeout` seconds.

    Use it only for requests that may be repeated: reads, deletes with a uid, merge patches.

    Args:
        request: function that sends the request.
        timeout: seconds after which a failed request is not repeated.
        clock: returns monotonic seconds; for tests.
        sleep: waits for a number of seconds; for tests.

    Raises:
        ClusterError: the last error.
    """
    backoff, deadline = Backoff(), clock() + timeout
    while True:
        try:
            return request()
        except ClusterError as error:
            delay = backoff.next(error)
            if not is_temporary(error) or clock() + delay > deadline:
                raise
        sleep(delay)
