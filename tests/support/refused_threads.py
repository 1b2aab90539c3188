"""Starts of this project's threads that fail as if the process had reached a limit of the operating system."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from unittest import mock

from trainjob import threads


class RefusedStarts:
    """A context manager in which some starts of threads are refused.

    It concerns only threads that [trainjob.threads][] starts, so not those of the tests and of the laptop cluster.

    Attributes:
        count: number of starts, also of the refused ones.
    """

    def __init__(self, is_refused: Callable[[int], bool]) -> None:
        """Create the context manager.

        Args:
            is_refused: returns whether to refuse a start, from its number, which begins at 1.
        """
        self._is_refused, self._lock, self.count = is_refused, threading.Lock(), 0

    def __enter__(self) -> RefusedStarts:
        starts = self

        class Thread(threading.Thread):
            def start(self) -> None:
                starts.check()
                super().start()

        self._patch = mock.patch.object(threads, "threading", SimpleNamespace(**{**vars(threading), "Thread": Thread}))
        self._patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.stop()

    def check(self) -> None:
        """Count a start, and raise Python's error if it is refused."""
        with self._lock:
            self.count += 1
            is_refused = self._is_refused(self.count)
        if is_refused:
            raise RuntimeError("can't start new thread")
