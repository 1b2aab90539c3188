"""Early end of a command, by a signal or because the reader of its output is gone."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import signal
import stat
from collections.abc import Awaitable, Callable
from typing import IO, Any, TypeVar

T = TypeVar("T")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(Exception):
    """A signal that ended the process early.

    Attributes:
        exit_code: the shell's exit code: 130 for Ctrl-C, 143 for SIGTERM.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class Interruption:
    """Early end of a coroutine; create this object on the coroutine's event loop."""

    def __init__(self) -> None:
        """Create an interruption that has not happened yet."""
        self._loop = asyncio.get_running_loop()
        self._reason: asyncio.Future[None] = self._loop.create_future()

    def handle_signals(self, on_first_signal: Callable[[], None]) -> None:
        """Interrupt the coroutine at the first SIGINT or SIGTERM; end the process at the second.

        Args:
            on_first_signal: function that reports the first signal to the user.
        """

        def on_signal(number: int) -> None:
            if self.reason:
                os._exit(128 + number)  # without waiting for any thread
            self.interrupt(Interrupted(number))
            on_first_signal()

        for number in _SIGNALS:
            self._loop.add_signal_handler(number, on_signal, number)

    def watch_reader(self, output: IO[str]) -> None:
        """Interrupt the coroutine as soon as the output is a pipe without a reader.

        On Linux this works also while nothing is written: epoll reports `EPOLLERR` for the pipe (pipe(7)). On other
        systems, the next write fails.
        """
        if hasattr(select, "epoll") and stat.S_ISFIFO(os.fstat(output.fileno()).st_mode):
            gone = BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
            self._loop.add_reader(output.fileno(), self.interrupt, gone)

    def interrupt(self, reason: Exception) -> None:
        """Interrupt the coroutine for this reason; call it on the event loop's thread.

        Only the first reason counts.
        """
        if not self._reason.done():
            self._reason.set_exception(reason)
            self._reason.exception()  # the coroutine may have ended; asyncio logs exceptions that nobody retrieves

    def interrupt_threadsafe(self, reason: Exception) -> None:
        """Interrupt the coroutine for this reason, from any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.interrupt, reason)

    @property
    def reason(self) -> BaseException | None:
        """The reason of the interruption; None if the coroutine was not interrupted."""
        return self._reason.exception() if self._reason.done() else None

    async def run(self, work: Awaitable[T]) -> T:
        """Return the result of a coroutine or a future, unless it is interrupted.

        Raises:
            Exception: the reason of the interruption; the work was cancelled.
        """
        task = asyncio.ensure_future(work)
        either: set[asyncio.Future[Any]] = {task, self._reason}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise self.reason or AssertionError("either the task or the interruption is done")
