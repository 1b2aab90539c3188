"""Standard output of the container, which the training and the recorder share."""

from __future__ import annotations

import os
import threading

__all__ = ["ContainerOutput"]

_STDOUT = 1


class ContainerOutput:
    """Standard output, to which several threads write."""

    def __init__(self) -> None:
        """Create the output before anything was written."""
        self._lock = threading.Lock()
        self._line_is_complete = True

    def write(self, chunk: bytes) -> None:
        """Write a chunk of the training's output unchanged.

        Raises:
            OSError: standard output is closed.
        """
        with self._lock:
            _write_all(chunk)
            self._line_is_complete = chunk.endswith((b"\n", b"\r"))

    def print_line(self, line: str) -> None:
        """Write a line of our own after the current line.

        Raises:
            OSError: standard output is closed.
        """
        with self._lock:
            _write_all(("" if self._line_is_complete else "\n").encode() + line.encode() + b"\n")
            self._line_is_complete = True


def _write_all(data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(_STDOUT, rest) :]
