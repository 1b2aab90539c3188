"""The progress that a fetch or an export prints while it runs."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

__all__ = ["TransferProgress", "format_size", "print_line"]

_INTERVAL = 10.0  # seconds between lines about files that are under way


class TransferProgress:
    """Progress lines of a fetch or an export, one for each complete file.

    A line reads `fetch: 3/7 model.safetensors 12.3 MB (45 %)`. All methods may be called from any thread.

    Args:
        program: the begin of each line: `fetch` or `export`.
        files: number of files.
        size: their total size in bytes.
        report: function that takes each line.
        interval: seconds between lines about incomplete files.
    """

    def __init__(
        self, program: str, files: int, size: int, report: Callable[[str], None], interval: float = _INTERVAL
    ) -> None:
        self._program, self._files, self._bytes = program, files, size
        self._print, self._interval = report, interval
        self._files_done = self._files_moved = self._bytes_done = self._bytes_moved = 0
        self._lock = threading.Lock()

    @property
    def files_moved(self) -> int:
        """Number of files that were moved, without those that were there already."""
        return self._files_moved

    def create_phase(self, name: str) -> TransferProgress:
        """Return the progress of a phase before the transfer, in which all bytes are read once."""
        return TransferProgress(f"{self._program}, {name}", self._files, self._bytes, self._print, self._interval)

    def add_bytes(self, count: int, *, moved: bool = True) -> None:
        """Count bytes that are done; `moved` is False if they were there already.

        A negative count takes back bytes that have to be moved again.
        """
        with self._lock:
            self._bytes_done += count
            self._bytes_moved += count if moved else 0

    def report_file(self, path: str, size: int, *, moved: bool = True) -> None:
        """Count a complete file and print its line.

        Args:
            path: path of the file.
            size: its size in bytes.
            moved: False if the file was already there; its bytes then count as done now.
        """
        with self._lock:
            self._files_done += 1
            self._files_moved += moved
            self._bytes_done += 0 if moved else size
            note = "" if moved else ", already there"
            self._report(f"{self._files_done}/{self._files} {path} {format_size(size)} ({self._percent()} %{note})")

    def report(self, line: str) -> None:
        """Print a line about the transfer."""
        with self._lock:
            self._report(line)

    @contextlib.contextmanager
    def report_periodically(self) -> Iterator[None]:
        """Report at regular intervals the bytes that are done, the rate and the time left.

        A single file may take an hour, and without these lines the log would be silent.
        """
        stop = threading.Event()
        reporter = threading.Thread(target=self._report_until_stopped, args=(stop,), name="progress", daemon=True)
        reporter.start()
        try:
            yield
        finally:
            stop.set()
            reporter.join()

    def _report_until_stopped(self, stop: threading.Event) -> None:
        start = last_time = time.monotonic()
        last = 0
        while not stop.wait(self._interval):
            now = time.monotonic()
            with self._lock:
                if self._bytes_moved != last:
                    rate = (self._bytes_moved - last) / (now - last_time)
                    left = (self._bytes - self._bytes_done) * (now - start) / max(1, self._bytes_moved)
                    self._report(
                        f"{format_size(self._bytes_done)} of {format_size(self._bytes)} ({self._percent()} %), "
                        f"{format_size(max(0.0, rate))}/s, {_format_seconds(left)} left"
                    )
                last, last_time = self._bytes_moved, now

    def _report(self, text: str) -> None:
        self._print(f"{self._program}: {text}")

    def _percent(self) -> int:
        return min(100, 100 * self._bytes_done // self._bytes) if self._bytes else 100


def print_line(line: str) -> None:
    """Print a line and flush it, so that it is in the pod's log immediately."""
    print(line, file=sys.stdout, flush=True)


def format_size(size: float) -> str:
    """Return a number of bytes as text for people: `512 B`, `12.3 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def _format_seconds(seconds: float) -> str:
    minutes = round(max(0.0, seconds)) // 60
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {round(seconds) % 60} s"
