"""The progress that a fetch prints while it runs."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator

__all__ = ["Progress", "say", "size_text"]

_EVERY = 10.0  # seconds between lines about files that are still arriving


class Progress:
    """Progress lines of a fetch, one for each file that has arrived.

    A line reads `fetch: 3/7 model.safetensors 12.3 MB (45 %)`. All methods may be called from any thread.

    Args:
        sizes: size of every file in bytes.
        tell: function that takes each line.
        arriving: function that returns the bytes on disk of the files that are not complete.
        every: seconds between lines about incomplete files.
    """

    def __init__(
        self, sizes: list[int], tell: Callable[[str], None], arriving: Callable[[], int], every: float = _EVERY
    ) -> None:
        self._files, self._bytes = len(sizes), sum(sizes)
        self._tell, self._arriving, self._every = tell, arriving, every
        self._done = self._arrived = 0
        self._lock = threading.Lock()

    def arrived(self, path: str, size: int, *, fetched: bool = True) -> None:
        """Count a file and print its line; `fetched` is False if the folder already had it."""
        with self._lock:
            self._done += 1
            self._arrived += size
            note = "" if fetched else ", already there"
            self._tell(f"fetch: {self._done}/{self._files} {path} {size_text(size)} ({self._percent()} %{note})")

    @contextlib.contextmanager
    def ticking(self) -> Iterator[None]:
        """Report at regular intervals how many bytes have arrived.

        One file may take an hour, so lines for complete files only would not be enough.
        """
        over = threading.Event()
        ticker = threading.Thread(target=self._tick, args=(over,), name="progress", daemon=True)
        ticker.start()
        try:
            yield
        finally:
            over.set()
            ticker.join()

    def _tick(self, over: threading.Event) -> None:
        last = -1
        while not over.wait(self._every):
            arriving = self._arriving()
            with self._lock:
                here = self._arrived + arriving
                if here != last:
                    text = f"{size_text(here)} of {size_text(self._bytes)} ({self._percent(arriving)} %)"
                    self._tell(f"fetch: {text}")
            last = here

    def _percent(self, more: int = 0) -> int:
        return min(100, 100 * (self._arrived + more) // self._bytes) if self._bytes else 100


def say(line: str) -> None:
    """Print a line and flush it, so that it is in the pod's log immediately."""
    print(line, file=sys.stdout, flush=True)


def size_text(size: float) -> str:
    """Return a number of bytes as text for people: `512 B`, `12.3 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
