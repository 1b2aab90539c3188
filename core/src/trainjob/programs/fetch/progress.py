"""The progress that a fetch prints while it runs."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator

__all__ = ["FetchProgress", "format_size", "print_line"]

_INTERVAL = 10.0  # seconds between lines about files that are still arriving


class FetchProgress:
    """Progress lines of a fetch, one for each complete file.

    A line reads `fetch: 3/7 model.safetensors 12.3 MB (45 %)`. All methods may be called from any thread.

    Args:
        sizes: size of every file in bytes.
        report: function that takes each line.
        get_partial_bytes: function that returns the bytes on disk of the files that are not complete.
        interval: seconds between lines about incomplete files.
    """

    def __init__(
        self,
        sizes: list[int],
        report: Callable[[str], None],
        get_partial_bytes: Callable[[], int],
        interval: float = _INTERVAL,
    ) -> None:
        self._files, self._bytes = len(sizes), sum(sizes)
        self._report, self._get_partial_bytes, self._interval = report, get_partial_bytes, interval
        self._files_done = self._bytes_done = 0
        self._lock = threading.Lock()

    def report_file(self, path: str, size: int, *, fetched: bool = True) -> None:
        """Count a file and print its line; `fetched` is False if the folder already had it."""
        with self._lock:
            self._files_done += 1
            self._bytes_done += size
            note = "" if fetched else ", already there"
            self._report(
                f"fetch: {self._files_done}/{self._files} {path} {format_size(size)} ({self._percent()} %{note})"
            )

    @contextlib.contextmanager
    def report_periodically(self) -> Iterator[None]:
        """Report at regular intervals how many bytes are fetched.

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
        last = -1
        while not stop.wait(self._interval):
            partial_bytes = self._get_partial_bytes()
            with self._lock:
                received = self._bytes_done + partial_bytes
                if received != last:
                    text = f"{format_size(received)} of {format_size(self._bytes)} ({self._percent(partial_bytes)} %)"
                    self._report(f"fetch: {text}")
            last = received

    def _percent(self, partial_bytes: int = 0) -> int:
        return min(100, 100 * (self._bytes_done + partial_bytes) // self._bytes) if self._bytes else 100


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
