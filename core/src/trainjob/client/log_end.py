"""Last line of a log, by which a reader knows that it has received the log of an ended container to its end.

The end of a response proves nothing: the API server ends the response in the normal way when its connection to the
kubelet breaks, with and without `follow`, also within a line (observed with Kubernetes 1.36.3). So a separate request
for the last line follows.

`tailLines` counts the records of the container runtime, not lines. A line of several records is returned without its
beginning and with the time of its last record. Such lines are longer than 16 KiB, or were written in parts: CRI-O
writes a record for each of them, and a record without text for a newline of its own.
"""

from __future__ import annotations

_MAX_BYTES = 1 << 16  # of a line's end that are kept; a record has up to 16 KiB
_STAMP_END = b" "


class LastLine:
    """The last line of a log as it was received.

    Attributes:
        content: its bytes, with its time and its line end; only the end of a very long line.
    """

    def __init__(self) -> None:
        """Create the last line of a log of which nothing was received."""
        self.content, self._begins_stream = b"", False

    def begin_stream(self) -> None:
        """Prepare for another stream of the log, which repeats the last line or begins after it."""
        self._begins_stream = True

    def add(self, chunk: bytes) -> None:
        """Add the next bytes of the stream."""
        if self._begins_stream or self.has_end:
            self.content, self._begins_stream = b"", False
        start = chunk.rfind(b"\n", 0, len(chunk) - 1) + 1
        self.content = chunk[start:] if start else (self.content + chunk)[-_MAX_BYTES:]

    def __bool__(self) -> bool:
        return bool(self.content)

    @property
    def has_end(self) -> bool:
        """Whether its line end has arrived."""
        return self.content.endswith(b"\n")

    def equals(self, other: LastLine) -> bool:
        """Return whether both are the same line, with the same time."""
        return self.content == other.content

    def ends_with_text_of(self, other: LastLine) -> bool:
        """Return whether the other line, without its time, is the end of this one.

        This is so if the other one is the last of several records of this line.
        """
        text = other.content.partition(_STAMP_END)[2]
        return bool(text) and self.content.endswith(text)
