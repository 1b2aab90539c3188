"""What a command that runs has written into a pipe until now."""

from __future__ import annotations

import os
import threading

from waiting_for import until


class Listener:
    """Reads all that comes, on a thread.

    Attributes:
        text: what has come.
    """

    def __init__(self, descriptor):
        self.text = ""
        self._descriptor = descriptor
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def until(self, words, seconds=60.0):
        """All that has come, once these words have."""
        until(lambda: words in self.text or not self._reader.is_alive(), seconds)
        assert words in self.text, self.text
        return self.text

    def rest(self, seconds=60.0):
        """All, once nothing more can come."""
        self._reader.join(seconds)
        assert not self._reader.is_alive(), self.text
        return self.text

    def _read(self):
        while chunk := os.read(self._descriptor, 65536):
            self.text += chunk.decode(errors="replace")
