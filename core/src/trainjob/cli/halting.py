"""What ends a command before its work is done: a signal, or a reader of its output that is gone."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import signal
import stat
from collections.abc import Callable, Coroutine
from typing import IO, Any, TypeVar

T = TypeVar("T")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(Exception):
    """Somebody wants the process to end.

    Attributes:
        exit_code: as a shell counts it: 130 for Ctrl-C, 143 for SIGTERM.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class Halt:
    """Ends what a coroutine waits for; made on its event loop."""

    def __init__(self) -> None:
        """Nothing has happened yet."""
        self._loop = asyncio.get_running_loop()
        self._happened: asyncio.Future[None] = self._loop.create_future()

    def on_signals(self, tell: Callable[[], None]) -> None:
        """From now on the first SIGINT or SIGTERM halts; the second one ends the process at once.

        Args:
            tell: says so to the person at the keyboard.
        """

        def first_or_second(number: int) -> None:
            if self.reason:
                os._exit(128 + number)  # whatever any thread is about
            self.because(Stopped(number))
            tell()

        for number in _SIGNALS:
            self._loop.add_signal_handler(number, first_or_second, number)

    def on_reader_gone(self, output: IO[str]) -> None:
        """From now on it halts when the pipe that is written to has lost its reader, also while nothing is written.

        Linux tells whoever waits for the pipe (`EPOLLERR`, pipe(7)); elsewhere it is seen with the next line.
        """
        if hasattr(select, "epoll") and stat.S_ISFIFO(os.fstat(output.fileno()).st_mode):
            gone = BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
            self._loop.add_reader(output.fileno(), self.because, gone)

    def because(self, reason: Exception) -> None:
        """Halt, on the event loop's thread; only the first reason counts."""
        if not self._happened.done():
            self._happened.set_exception(reason)

    def because_soon(self, reason: Exception) -> None:
        """Halt, from any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.because, reason)

    @property
    def reason(self) -> BaseException | None:
        """Why it halts; None while it does not."""
        return self._happened.exception() if self._happened.done() else None

    async def unless(self, work: Coroutine[Any, Any, T]) -> T:
        """What the work returns; it is cancelled, and the reason is raised, when something happens before that."""
        task = asyncio.ensure_future(work)
        either: set[asyncio.Future[Any]] = {task, self._happened}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise self.reason or AssertionError("one of the two is done")
