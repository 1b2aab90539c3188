"""Losses in the lines of a training's log, and whether they say that it diverges."""

from __future__ import annotations

import re

__all__ = ["Losses", "has_no_finite_loss"]

_NOT_FINITE = re.compile(r"\bloss\b['\"]?\s?[:=]\s?['\"]?[-+]?(?:nan|inf(?:inity)?)\b", re.IGNORECASE)
_LINES = 5  # in a row; transformers' callback of this project raises its own error before, after 3


def has_no_finite_loss(line: str) -> bool:
    """Return whether a line of the log has a loss that is NaN or infinite."""
    return bool(_NOT_FINITE.search(line))


class Losses:
    """Record of a training's losses.

    Attributes:
        divergence: text that says how it diverges; empty if it does not.
    """

    def __init__(self, factor: float | None) -> None:
        """Create a record without losses.

        Args:
            factor: a loss that is more than so many times the best one, and above the first one, is a divergence; None
                means that only numbers that are not finite are.
        """
        self.divergence = ""
        self._factor, self._first, self._lines = factor, 0.0, 0
        self._best: tuple[float, int] | None = None  # with its step
        self._last = "no line had a finite one"

    def observe(self, step: int, loss: float | None) -> None:
        """Record the loss of a line; None if it is not a finite number."""
        if loss is not None and not self._is_too_high(loss):
            self._first = self._first if self._best else loss
            self._best = min(self._best or (loss, step), (loss, step))
            self._last, self._lines = f"the last finite one is {loss:.4g} at step {step}", 0
            return
        self._lines += 1
        if self._lines < _LINES or self.divergence:
            return
        if loss is None or self._best is None:
            self.divergence = f"the loss is not a finite number at step {step}; {self._last}"
        else:
            best, best_step = self._best
            times = f"{loss / best:.3g} times the best one ({best:.4g} at step {best_step})"
            self.divergence = f"the loss is {loss:.4g} at step {step}, {times}"

    def _is_too_high(self, loss: float) -> bool:
        if self._factor is None or self._best is None or self._best[0] <= 0:  # rewards have losses around 0
            return False
        return loss > max(self._factor * self._best[0], self._first)
