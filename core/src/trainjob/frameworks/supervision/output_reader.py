"""Losses in the output of a training, and its steps if its processes do not report them."""

from __future__ import annotations

import time

from trainjob.frameworks.log_parser import JobLogParser
from trainjob.frameworks.output_lines import OutputLines
from trainjob.frameworks.supervision.losses import Losses, has_no_finite_loss

__all__ = ["OutputReader"]


class OutputReader:
    """Reader of a training's output, which finds its last step and whether its loss diverges.

    Attributes:
        losses: the losses of its lines.
        is_needed: whether the processes report no steps.
        step: last step; None if the output has none.
        step_at: time at which it was written, in seconds of the monotonic clock.
        written_at: time of the last output.
    """

    def __init__(self, loss_factor: float | None) -> None:
        """Create a reader that has seen no output.

        Args:
            loss_factor: see [trainjob.frameworks.supervision.losses.Losses][].
        """
        self.losses = Losses(loss_factor)
        self.is_needed = True
        self.step: int | None = None
        self.step_at = self.written_at = 0.0
        self._lines, self._parser = OutputLines(), JobLogParser()

    def put(self, chunk: bytes) -> None:
        """Read a chunk of the output."""
        self.written_at = time.monotonic()
        for line in self._lines.feed(chunk):
            progress = self._parser.feed(line)
            if progress and progress.unit == "step":
                self.step, self.step_at = progress.step, self.written_at
                # transformers subtracts NaN from NaN after each line, so one such loss makes all later ones NaN, and
                # only the gradients have a meaning (5.23, trainer.py, _maybe_log_save_evaluate).
                has_gradients = progress.value_at_step("grad_norm") is not None
                if has_no_finite_loss(line) and not has_gradients:
                    self.losses.observe(progress.step, None)
                elif (loss := progress.value_at_step("loss")) is not None:
                    self.losses.observe(progress.step, loss)
