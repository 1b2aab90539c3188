"""When to look why a job does not get going: soon at first, then ever less often."""

from __future__ import annotations

_FIRST, _LONGEST = 15.0, 240.0  # seconds


class Looks:
    """The times of the looks at one job; a job that waits for something else is looked at soon again. No clock."""

    def __init__(self) -> None:
        """There is nothing to look for yet."""
        self._cause, self._pause, self._at = "", _FIRST, 0.0

    def left(self, cause: str, now: float) -> float | None:
        """Seconds to the next look; None when there is nothing to look for.

        Args:
            cause: what the job waits for, as a word; empty when it does not wait.
            now: seconds of any monotonic clock.
        """
        if cause != self._cause:
            self._cause, self._pause, self._at = cause, _FIRST, now + _FIRST
        return max(0.0, self._at - now) if cause else None

    def done(self, now: float) -> None:
        """It was looked at."""
        self._pause = min(self._pause * 2.0, _LONGEST)
        self._at = now + self._pause
