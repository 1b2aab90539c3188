"""A reader of the pipe into which a running command writes."""

from __future__ import annotations

import os
import threading

from tests.support.polling import wait_until


class PipeReader:
    """A reader of a pipe to its end, on a thread of its own.

    Attributes:
        text: everything read so far.
    """

    def __init__(self, descriptor: int) -> None:
        self.text = ""
        self._descriptor = descriptor
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, text: str, seconds: float = 60.0) -> str:
        """Return everything read so far, as soon as it contains `text`."""
        wait_until(lambda: text in self.text or not self._reader.is_alive(), seconds)
        assert text in self.text, self.text
        return self.text

    def read_to_end(self, seconds: float = 60.0) -> str:
        """Return everything, after the other end was closed."""
        self._reader.join(seconds)
        assert not self._reader.is_alive(), self.text
        return self.text

    def _read(self) -> None:
        while chunk := os.read(self._descriptor, 65536):
            self.text += chunk.decode(errors="replace")
