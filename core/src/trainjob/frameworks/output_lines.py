"""Lines of a training's output, which arrives in chunks of any size."""

from __future__ import annotations

import re

__all__ = ["OutputLines"]

_LINE_END = re.compile(rb"[\r\n]")
_MAX_LINE_BYTES = 1 << 16


class OutputLines:
    """Splitter of an output into lines and frames of progress bars."""

    def __init__(self) -> None:
        """Create a splitter that has seen no output."""
        self._incomplete = b""

    def feed(self, chunk: bytes) -> list[str]:
        """Return the lines that a chunk completes; of a line over 64 KiB only the end."""
        *lines, rest = _LINE_END.split(self._incomplete + chunk)
        self._incomplete = rest[-_MAX_LINE_BYTES:]
        return [line[-_MAX_LINE_BYTES:].decode(errors="replace") for line in lines]
