"""A bounded number of threads for work that spends most of its time waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable

Work = Callable[[], None]


class BoundedExecutor:
    """Executor that runs each piece of work on its own daemon thread.

    At most `max_threads` of these threads run at once; further work is queued. The executors of the standard library
    join their threads when the interpreter exits. This executor does not, so a thread that waits for the network does
    not keep the process from ending.

    Attributes:
        max_threads: number of threads that may run at once.
        completed: number of works that have ended.
    """

    def __init__(self, name: str, max_threads: int) -> None:
        """Create an executor; it starts no thread yet.

        Args:
            name: name of the threads.
            max_threads: number of threads that may run at once.
        """
        self.max_threads, self._name, self._running, self.completed = max_threads, name, 0, 0
        self._lock = threading.Lock()
        self._queued: dict[Work, None] = {}  # in the order of submission

    def submit(self, work: Work) -> bool:
        """Run `work` on a thread, or queue it until a thread is free.

        Returns:
            True if the work started immediately; False if it is queued.
        """
        with self._lock:
            if self._running >= self.max_threads:
                self._queued[work] = None
                return False
            self._running += 1
        self._start(work)
        return True

    def cancel(self, work: Work) -> bool:
        """Remove work from the queue.

        Returns:
            True if the work was removed; False if it has started or was never submitted.
        """
        with self._lock:
            return self._queued.pop(work, self) is None

    def _start(self, work: Work) -> None:
        threading.Thread(target=self._run, args=(work,), name=self._name, daemon=True).start()

    def _run(self, work: Work) -> None:
        try:
            work()
        finally:
            self._start_next()

    def _start_next(self) -> None:
        with self._lock:
            self.completed += 1
            if not self._queued:
                self._running -= 1
                return
            first = next(iter(self._queued))
            del self._queued[first]
        self._start(first)
