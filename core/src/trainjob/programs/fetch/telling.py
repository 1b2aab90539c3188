"""What a fetch tells while it runs."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator

__all__ = ["Progress", "say", "size_text"]

_EVERY = 10.0  # seconds between lines about files that are still arriving


class Progress:
    """Prints a line for each file that has arrived: `fetch: 3/7 model.safetensors 12.3 MB (45 %)`; from any thread.

    Args:
        sizes: bytes of every file.
        tell: takes the lines.
        arriving: how many bytes lie there of files that are not complete.
        every: seconds between lines about those.
    """

    def __init__(
        self, sizes: list[int], tell: Callable[[str], None], arriving: Callable[[], int], every: float = _EVERY
    ) -> None:
        self._files, self._bytes = len(sizes), sum(sizes)
        self._tell, self._arriving, self._every = tell, arriving, every
        self._done = self._arrived = 0
        self._lock = threading.Lock()

    def arrived(self, path: str, size: int, *, fetched: bool = True) -> None:
        """Counts a file, `fetched` or there already."""
        with self._lock:
            self._done += 1
            self._arrived += size
            note = "" if fetched else ", already there"
            self._tell(f"fetch: {self._done}/{self._files} {path} {size_text(size)} ({self._percent()} %{note})")

    @contextlib.contextmanager
    def ticking(self) -> Iterator[None]:
        """Tells now and then how many bytes there are, as one file may take an hour."""
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
    """Prints a line at once: the readers of a pod's log want it now."""
    print(line, file=sys.stdout, flush=True)


def size_text(size: float) -> str:
    """Writes bytes for people: `512 B`, `12.3 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
