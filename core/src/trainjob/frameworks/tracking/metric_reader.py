"""Metrics in the output of a training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainjob.frameworks.log_parser import JobLogParser
from trainjob.frameworks.output_lines import OutputLines

__all__ = ["MetricReader"]


class MetricReader:
    """Reader of a training's output in chunks of any size."""

    def __init__(self) -> None:
        """Create a reader that has seen no output."""
        self._parser, self._lines = JobLogParser(), OutputLines()
        self._step = -1
        self._names: set[str] = set()  # of the step's values that were returned

    def feed(self, chunk: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the step and its new values for each line or frame of a progress bar.

        Lines without values yield nothing.
        """
        for line in self._lines.feed(chunk):
            if values := self._read_line(line):
                yield self._step, values

    def finish(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the step and its new values of the last line, which has no line end."""
        return self.feed(b"\n")

    def _read_line(self, line: str) -> dict[str, Any]:
        progress = self._parser.feed(line)
        if progress is None or progress.unit != "step":
            return {}
        if progress.step != self._step:
            self._step, self._names = progress.step, set()
        found = {name: progress.value_at_step(name) for name in ("loss", *progress.metrics)}
        new = {name: value for name, value in found.items() if value is not None and name not in self._names}
        self._names |= new.keys()
        return new
