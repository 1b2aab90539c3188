"""Pace of a training: how long its steps take, and whether they have become slower."""

from __future__ import annotations

import statistics
from collections import deque

__all__ = ["Pace"]

_LOOKS = 64  # whose medians are compared: a window with few long steps, such as evaluations, has the usual median
_FEW_LOOKS = 3


class Pace:
    """Seconds of a step at the last looks; each covers the steps since the one before.

    Attributes:
        best: lowest median of a whole window of looks; None before the first one.
    """

    def __init__(self) -> None:
        """Create a record without steps."""
        self.best: float | None = None
        self._seconds: deque[float] = deque(maxlen=_LOOKS)
        self._last: tuple[int, float] | None = None

    def observe(self, step: int, now: float) -> None:
        """Record the last step, and the time at which it was seen first."""
        if self._last and self._last[0] == step:
            return
        if self._last and step > self._last[0]:
            self._seconds.append((now - self._last[1]) / (step - self._last[0]))
            if len(self._seconds) == _LOOKS:
                median = statistics.median(self._seconds)
                self.best = median if self.best is None else min(self.best, median)
        self._last = (step, now)

    @property
    def median(self) -> float | None:
        """Median of the seconds of a step at the last looks; None after few steps."""
        return statistics.median(self._seconds) if len(self._seconds) >= _FEW_LOOKS else None

    def describe_slowness(self, factor: float) -> str:
        """Return a text if the steps take longer than before.

        Args:
            factor: a text follows if the median is more than so many times the best one.
        """
        median = self.median
        if self.best is None or median is None or median <= factor * self.best:
            return ""
        return f"a step takes {median:.3g} s, {median / self.best:.1f} times as long as before ({self.best:.3g} s)"
