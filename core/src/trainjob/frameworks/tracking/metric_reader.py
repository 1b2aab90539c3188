"""Metrics in the output of a training."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from trainjob.frameworks.log_parser import JobLogParser

__all__ = ["MetricReader"]

_LINE_END = re.compile(rb"[\r\n]")
_MAX_LINE_BYTES = 1 << 16


class MetricReader:
    """Reader of a training's output in chunks of any size."""

    def __init__(self) -> None:
        """Create a reader that has seen no output."""
        self._parser = JobLogParser()
        self._incomplete = b""
        self._step = -1
        self._names: set[str] = set()  # of the step's values that were returned

    def feed(self, chunk: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the step and its new values for each line or frame of a progress bar.

        Lines without values yield nothing. Of a line over 64 KiB only the end is read.
        """
        *lines, rest = _LINE_END.split(self._incomplete + chunk)
        self._incomplete = rest[-_MAX_LINE_BYTES:]
        for line in lines:
            if values := self._read_line(line[-_MAX_LINE_BYTES:].decode(errors="replace")):
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
