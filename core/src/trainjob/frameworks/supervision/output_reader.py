"""Steps in the output of a training whose processes do not report them."""

from __future__ import annotations

import time

from trainjob.frameworks.log_parser import JobLogParser
from trainjob.frameworks.output_lines import OutputLines

__all__ = ["OutputReader"]


class OutputReader:
    """Reader of a training's output, which finds its last step.

    Attributes:
        is_needed: whether steps are looked for; an output whose steps are known otherwise is not read.
        step: last step; None if the output has none.
        step_at: time at which it was written, in seconds of the monotonic clock.
        written_at: time of the last output.
    """

    def __init__(self) -> None:
        """Create a reader that has seen no output."""
        self.is_needed = True
        self.step: int | None = None
        self.step_at = self.written_at = 0.0
        self._lines, self._parser = OutputLines(), JobLogParser()

    def put(self, chunk: bytes) -> None:
        """Read a chunk of the output."""
        if not self.is_needed:
            return
        self.written_at = time.monotonic()
        for line in self._lines.feed(chunk):
            progress = self._parser.feed(line)
            if progress and progress.unit == "step":
                self.step, self.step_at = progress.step, self.written_at
