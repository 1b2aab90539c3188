"""Batches of calls between an event loop and other threads.

A process may wait for 10,000 TrainJobs. If each event woke the event loop, and each wait occupied a thread of its own
to start, the start of these waits would take several times as long.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from trainjob.threads import run_on_thread

# The loop continues with other work after this many calls, each of which may make a coroutine run for about 0.1 ms.
_BATCH = 50


class LoopBatches:
    """Calls from threads into an event loop, and short calls from the loop to a thread.

    The loop runs at most 50 of them before it continues with other work. All waits on a loop share this object; see
    [get_loop_batches][].
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Create the batches of an event loop; they hold only a weak reference to it."""
        self._loop = weakref.ref(loop)
        self._lock = threading.Lock()
        self._callbacks: deque[Callable[[], object]] = deque()
        self._will_run_callbacks = False
        self._calls: deque[tuple[Callable[[], object], asyncio.Future[Any]]] = deque()
        self._is_thread_running = False

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call a function on the event loop, from any thread and in the order of these calls.

        An error of the function goes to the loop's exception handler. The function is not called if the loop is closed.
        """
        loop = self._loop()
        if loop is None or loop.is_closed():
            return
        with self._lock:
            self._callbacks.append(callback)
            must_wake, self._will_run_callbacks = not self._will_run_callbacks, True
        if must_wake:
            try:
                loop.call_soon_threadsafe(self._run_callbacks, loop)
            except RuntimeError:  # the loop was closed since
                self._callbacks.clear()

    def _run_callbacks(self, loop: asyncio.AbstractEventLoop) -> None:
        for _ in range(min(_BATCH, len(self._callbacks))):
            callback = self._callbacks.popleft()
            try:
                callback()
            except Exception as error:  # noqa: BLE001 - it must not stop the other callbacks
                loop.call_exception_handler({"message": f"callback {callback} failed", "exception": error})
        with self._lock:
            self._will_run_callbacks = bool(self._callbacks)
        if self._will_run_callbacks:
            loop.call_soon(self._run_callbacks, loop)

    async def run_on_thread(self, function: Callable[[], object]) -> None:
        """Run a function on a thread that runs other such functions before and after it.

        The function must be short: it may wait for a lock, but not for a request. It is not called if this coroutine
        was cancelled before.

        Raises:
            OutOfThreads: no thread could be started for a minute; the function was not called.
            Exception: the error of the function.
        """
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        self._calls.append((function, ended))
        if not self._is_thread_running:
            self._is_thread_running = True
            loop.call_soon(self._start_thread, loop)  # later, so that calls of this moment are in the same batch
        await ended

    def _start_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        batch = [self._calls.popleft() for _ in range(min(_BATCH, len(self._calls)))]
        self._is_thread_running = bool(batch)
        if batch:
            running = run_on_thread(_run_batch, batch)
            running.add_done_callback(partial(self._end_batch, loop, batch))

    def _end_batch(
        self,
        loop: asyncio.AbstractEventLoop,
        batch: Sequence[tuple[object, asyncio.Future[None]]],
        running: asyncio.Future[list[BaseException | None]],
    ) -> None:
        """Set the results, and start the next batch after the coroutines that they resume."""
        if running.cancelled():  # the loop ends
            for _, ended in batch:
                ended.cancel()
            return
        failure = running.exception()
        errors = [failure] * len(batch) if failure else running.result()
        for (_, ended), error in zip(batch, errors, strict=True):
            if ended.done():  # it was cancelled
                continue
            if error is None:
                ended.set_result(None)
            else:
                ended.set_exception(error)
        loop.call_soon(self._start_thread, loop)


def _run_batch(batch: Sequence[tuple[Callable[[], object], asyncio.Future[None]]]) -> list[BaseException | None]:
    return [_run_one(function) if not ended.cancelled() else None for function, ended in batch]


def _run_one(function: Callable[[], object]) -> BaseException | None:
    try:
        function()
    except BaseException as error:  # noqa: BLE001 - raised where the function is awaited
        return error
    return None


_batches: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopBatches] = weakref.WeakKeyDictionary()


def get_loop_batches() -> LoopBatches:
    """Return the batches of the running event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _batches:
        _batches[loop] = LoopBatches(loop)
    return _batches[loop]
