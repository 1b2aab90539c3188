"""A bounded number of threads for work that mostly waits."""

from __future__ import annotations

import threading
from collections.abc import Callable

Work = Callable[[], None]


class Crew:
    """Does pieces of work, each on a daemon thread, so many at once; those over that wait their turn.

    Unlike the executors of the standard library, it keeps no process from ending.
    """

    def __init__(self, name: str, most: int) -> None:
        """No thread is started yet.

        Args:
            name: of the threads.
            most: how many may run at once.
        """
        self.most, self._name, self._busy = most, name, 0
        self._lock = threading.Lock()
        self._waiting: dict[Work, None] = {}  # in order

    def do(self, work: Work) -> bool:
        """Do it now, which is True, or when others have ended."""
        with self._lock:
            if self._busy >= self.most:
                self._waiting[work] = None
                return False
            self._busy += 1
        self._begin(work)
        return True

    def withdraw(self, work: Work) -> bool:
        """Take back what has not begun; False when it has, or was never given."""
        with self._lock:
            return self._waiting.pop(work, self) is None

    def _begin(self, work: Work) -> None:
        threading.Thread(target=self._carry_out, args=(work,), name=self._name, daemon=True).start()

    def _carry_out(self, work: Work) -> None:
        try:
            work()
        finally:
            self._give_place()

    def _give_place(self) -> None:
        with self._lock:
            if not self._waiting:
                self._busy -= 1
                return
            first = next(iter(self._waiting))
            del self._waiting[first]
        self._begin(first)
