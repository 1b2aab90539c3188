"""Rate limit of a log: a token bucket that slows down while the log blocks."""

from __future__ import annotations

from dataclasses import dataclass

from trainjob.client.log_lines import byte_length


@dataclass(frozen=True)
class RateLimit:
    """The rate that a log sustains.

    Attributes:
        bytes_per_second: bytes per second in the long run.
        burst: bytes that may be written at once after a pause.
        line_overhead: bytes that the log adds to each line's text.
        slow_write: seconds; if a single write takes longer, the log is congested and the rate is halved.
    """

    bytes_per_second: float
    burst: float
    line_overhead: int = 0
    slow_write: float = 0.05

    def cost(self, text: str) -> int:
        """Return the cost of a line in bytes, including the log's overhead."""
        return self.line_overhead + byte_length(text)


_MIN_RATE = 1 / 16  # of the limit: the lowest rate after slow writes
_MAX_GROUP_SECONDS = 0.1
_RECOVERY_SECONDS = 60.0  # from nothing to the full rate, while writes are quick


class TokenBucket:
    """Token bucket that limits the rate of written lines.

    A line may be written while the bucket is not empty, even if the line is longer than the whole burst. The bucket is
    in debt afterwards, so that the rate holds for lines of every length.

    Attributes:
        pause_of_group: shortest useful pause at the limit, in seconds; the bucket is not full after it. A pause before
            each line would take 90 % of the writer's CPU time.
    """

    def __init__(self, limit: RateLimit, now: float) -> None:
        """Create a full bucket.

        Args:
            limit: rate that must not be exceeded.
            now: seconds of a monotonic clock, as for all methods.
        """
        self._limit, self._refilled_at = limit, now
        self._tokens, self._rate = limit.burst, limit.bytes_per_second
        self.pause_of_group = min(_MAX_GROUP_SECONDS, limit.burst / limit.bytes_per_second / 4)

    @property
    def rate(self) -> float:
        """Current rate in bytes per second."""
        return self._rate

    def seconds_to_wait(self, now: float) -> float:
        """Return the seconds until the next line may be written; 0 if it may be written now."""
        self._refill(now)
        return max(0.0, -self._tokens / self._rate)

    def spend(self, text: str, began: float, ended: float) -> None:
        """Subtract the cost of a written line, and halve the rate if the write was slow.

        Args:
            text: the line.
            began: time at which the write began.
            ended: time at which the write returned.
        """
        self._refill(ended)
        self._tokens -= self._limit.cost(text)
        if ended - began > self._limit.slow_write:
            self._rate = max(self._rate / 2, self._limit.bytes_per_second * _MIN_RATE)
            self._tokens = min(self._tokens, 0.0)

    def _refill(self, now: float) -> None:
        passed, full = max(0.0, now - self._refilled_at), self._limit.bytes_per_second
        self._refilled_at = max(self._refilled_at, now)
        self._tokens = min(self._limit.burst, self._tokens + passed * self._rate)
        self._rate = min(full, self._rate + full * passed / _RECOVERY_SECONDS)
