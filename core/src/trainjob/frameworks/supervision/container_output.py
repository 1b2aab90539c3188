"""Standard output of the container, which the training and the recorder share."""

from __future__ import annotations

import contextlib
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
        self._line_has_frames = False  # whether the current line has frames of a progress bar
        self._has_ended = False
        self._waiting = b""  # lines of our own

    def write(self, chunk: bytes) -> None:
        """Write a chunk of the training's output.

        The waiting lines of our own follow its last complete line.

        Raises:
            OSError: standard output is closed.
        """
        lines, line_end, rest = chunk.rpartition(b"\n")
        with self._lock:
            waiting = self._waiting if line_end else b""
            _write_all(lines + line_end + waiting + rest)
            self._waiting = self._waiting[len(waiting) :]
            self._line_is_complete = not rest and (bool(line_end) or self._line_is_complete)
            self._line_has_frames = b"\r" in rest or (self._line_has_frames and not line_end)
            self._write_waiting_lines()

    def print_line(self, line: str) -> None:
        """Write a line of our own when the training's current line is complete.

        Frames of a progress bar do not delay it: it follows them on a new line. Nobody reads the line if standard
        output is closed.
        """
        with self._lock, contextlib.suppress(OSError):
            self._waiting += line.encode() + b"\n"
            self._write_waiting_lines()

    def end(self) -> None:
        """Write the waiting lines after the end of the training's output.

        Its last line may be incomplete.
        """
        with self._lock, contextlib.suppress(OSError):
            self._has_ended = True
            self._write_waiting_lines()

    def _write_waiting_lines(self) -> None:
        if not self._waiting or not (self._line_is_complete or self._line_has_frames or self._has_ended):
            return
        waiting, self._waiting = self._waiting, b""
        _write_all((b"" if self._line_is_complete else b"\n") + waiting)
        self._line_is_complete, self._line_has_frames = True, False


def _write_all(data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(_STDOUT, rest) :]
