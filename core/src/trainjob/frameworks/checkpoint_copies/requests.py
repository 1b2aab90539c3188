"""Requests of a training to the program that copies its checkpoints, in the order in which they are handled."""

from __future__ import annotations

import json
import queue
from collections.abc import Iterable
from pathlib import PurePath

from trainjob.frameworks.copier_process import UPLOAD

__all__ = ["Requests"]


class Requests:
    """Queue of requests, which another thread fills.

    Attributes:
        skipped: names of checkpoints whose uploads were left out, because a newer one waited.
    """

    def __init__(self) -> None:
        """Create an empty queue."""
        self._waiting: queue.Queue[list[str]] = queue.Queue()
        self.skipped: list[str] = []

    def fill(self, lines: Iterable[str]) -> None:
        """Add the request in each line, a list in JSON, up to an empty one or the end."""
        for line in lines:
            if not line.endswith("\n"):
                break  # the training was killed while it wrote
            if not (request := json.loads(line)):
                break
            self._waiting.put(list(map(str, request)))
        self._waiting.put([])

    def take(self) -> list[str]:
        """Return the next request, when there is one; empty at the end.

        An upload after which another request waits is left out.
        """
        request = self._waiting.get()
        while request and request[0] == UPLOAD and not self._waiting.empty():
            later = self._waiting.get()
            if not later:
                self._waiting.put(later)
                break
            if later[0] == UPLOAD:
                self.skipped.append(PurePath(request[1]).name)
            request = later
        return request
