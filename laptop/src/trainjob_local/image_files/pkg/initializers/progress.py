"""Log lines about the progress of a download."""

from __future__ import annotations

import threading

from pkg.initializers.request import Request

__all__ = ["Progress"]


class Progress:
    """Thread-safe counter of downloaded files, which prints a line for each file.

    Args:
        request: source and target of the download.
        sizes: sizes of all files, in bytes.
    """

    def __init__(self, request: Request, sizes: list[int]) -> None:
        self._kind, self._total = request.kind, len(sizes)
        self._done = 0
        self._lock = threading.Lock()
        self._print(f"{len(sizes)} files, {_format_size(sum(sizes))}, from {request.uri} to {request.target}")

    def report_file(self, file: str, size: int) -> None:
        """Count a complete file and print its line.

        Args:
            file: name of the file.
            size: size of the file in bytes.
        """
        with self._lock:
            self._done += 1
            self._print(f"{self._done}/{self._total} {file} {_format_size(size)}")

    def _print(self, text: str) -> None:
        print(f"{self._kind} initializer: {text}", flush=True)


def _format_size(size: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
