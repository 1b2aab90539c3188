"""Threads of this process, which the operating system may refuse to start.

A process can reach the limit of its pod (`podPidsLimit`), of its user (`ulimit -u`) or of its memory for a moment.
Python then raises `RuntimeError: can't start new thread`. All threads are started here: a refused start raises a typed
error that a retry can fix, or leaves the work queued.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, ParamSpec, TypeVar

from trainjob.errors import OutOfThreads

Work = Callable[[], None]
_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

RETRY_SECONDS = 1.0
"""Seconds between two attempts to start a thread for queued work."""
_IDLE_SECONDS = 2.0  # for which a thread of an executor waits for work
_MAX_SECONDS = 60.0  # for which the start of a thread is tried again, as requests are
_LOOP_THREADS = 16  # of each event loop, for short calls
_REFUSAL = "can't start new thread"  # of CPython 3.10 to 3.14, whatever the reason


def start_thread(function: Callable[..., object], *arguments: Any, name: str) -> threading.Thread:
    """Run a function on a new daemon thread, and return the thread.

    Raises:
        OutOfThreads: the operating system refuses to start a thread.
    """
    thread = threading.Thread(target=function, args=arguments, name=name, daemon=True)
    with convert_refusal():
        thread.start()
    return thread


@contextlib.contextmanager
def convert_refusal() -> Iterator[None]:
    """Raise an `OutOfThreads` in place of Python's error.

    Raises:
        OutOfThreads: the operating system refuses to start a thread.
    """
    try:
        yield
    except RuntimeError as error:
        if str(error) != _REFUSAL:
            raise
        raise _out_of_threads() from error


def _out_of_threads() -> OutOfThreads:
    return OutOfThreads(
        "the operating system refuses to start another thread of this process",
        hint="raise the limit of the pod's processes (`podPidsLimit`), of the user (`ulimit -u`) or of memory",
    )


class BoundedExecutor:
    """Executor that runs work on daemon threads.

    At most `max_threads` of these threads run at once; further work is queued. A thread ends after some seconds without
    work. To start one for each work would take half of the CPU time of starting 10,000 waits.

    The executors of the standard library join their threads when the interpreter exits. This executor does not, so a
    thread that waits for the network does not keep the process from ending.

    If the operating system refuses to start a thread, the work stays queued. The threads that run take it, and the next
    [submit][] or [start_queued][] tries to start a thread for it.

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
        self._idle: list[queue.SimpleQueue[Work]] = []  # the inboxes of threads without work

    @property
    def is_stalled(self) -> bool:
        """Whether work is queued because no thread could be started for it."""
        return bool(self._queued) and self._running < self.max_threads

    def submit(self, work: Work) -> bool:
        """Run `work` on a thread, or queue it until a thread is free.

        Returns:
            True if the work started immediately; False if it is queued.
        """
        with self._lock:
            self._queued[work] = None
            self._start_threads()
            return work not in self._queued

    def start_queued(self) -> None:
        """Start threads for queued work, if their start was refused before."""
        with self._lock:
            self._start_threads()

    def cancel(self, work: Work) -> bool:
        """Remove work from the queue.

        Returns:
            True if the work was removed; False if it has started or was never submitted.
        """
        with self._lock:
            return self._queued.pop(work, self) is None

    def _start_threads(self) -> None:
        while self.is_stalled:
            work = self._pop_first()
            self._running += 1
            if self._idle:
                self._idle.pop().put(work)
                continue
            inbox: queue.SimpleQueue[Work] = queue.SimpleQueue()
            inbox.put(work)
            try:
                start_thread(self._run, inbox, name=self._name)
            except OutOfThreads:
                self._running -= 1
                self._queued = {work: None, **self._queued}
                return

    def _pop_first(self) -> Work:
        work = next(iter(self._queued))
        del self._queued[work]
        return work

    def _run(self, inbox: queue.SimpleQueue[Work]) -> None:
        work: Work | None = inbox.get()
        while work is not None:
            try:
                work()
            except BaseException:  # noqa: BLE001 - reported as by a thread of its own
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
            work = None  # else an idle thread would keep it in memory
            work = self._take_next(inbox)

    def _take_next(self, inbox: queue.SimpleQueue[Work]) -> Work | None:
        """Return the next work of a thread, or None if the thread had none for some seconds."""
        with self._lock:
            self.completed += 1
            if self._queued:
                return self._pop_first()
            self._running -= 1
            self._idle.append(inbox)
        with contextlib.suppress(queue.Empty):
            return inbox.get(timeout=_IDLE_SECONDS)
        with self._lock:
            if inbox in self._idle:
                self._idle.remove(inbox)
                return None
        return inbox.get()  # it was put there at the last moment


def run_on_thread(
    function: Callable[_Parameters, _Result], *arguments: _Parameters.args, **keywords: _Parameters.kwargs
) -> asyncio.Future[_Result]:
    """Call a function on a thread of the event loop, and return a future of its result.

    See [run_on_executor][]. `asyncio.to_thread` is not used: a refused start raises an error there although the call is
    queued and may run later, and the event loop's default threads are few. Airflow's triggerer writes log lines and
    XComs on them.
    """
    loop = asyncio.get_running_loop()
    if loop not in _executors:
        _executors[loop] = BoundedExecutor("trainjob", _LOOP_THREADS)
    return run_on_executor(_executors[loop], partial(function, *arguments, **keywords))


_executors: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, BoundedExecutor] = weakref.WeakKeyDictionary()


def run_on_executor(executor: BoundedExecutor, function: Callable[[], _Result]) -> asyncio.Future[_Result]:
    """Call a function on a thread of an executor, and return a future of its result.

    The function has the caller's context (`contextvars`). It is not called if the future is cancelled before.

    The future has an `OutOfThreads` if no thread could be started for a minute; the function is not called then.
    """
    result: Future[_Result] = Future()
    context = contextvars.copy_context()

    def work() -> None:
        if result.set_running_or_notify_cancel():
            try:
                result.set_result(context.run(function))
            except BaseException as error:  # noqa: BLE001 - raised where it is awaited
                result.set_exception(error)

    future = asyncio.wrap_future(result)
    executor.submit(work)
    if executor.is_stalled:
        deadline = time.monotonic() + _MAX_SECONDS
        _retry_later(asyncio.get_running_loop(), executor, work, result, deadline)
    return future


def _retry_later(
    loop: asyncio.AbstractEventLoop, executor: BoundedExecutor, work: Work, result: Future[Any], deadline: float
) -> None:
    """Start threads for queued work after a pause; give up at the deadline."""

    def retry() -> None:
        executor.start_queued()
        if executor.is_stalled:
            if result.cancelled() or time.monotonic() >= deadline:
                if executor.cancel(work) and result.set_running_or_notify_cancel():
                    result.set_exception(_out_of_threads())
            else:
                _retry_later(loop, executor, work, result, deadline)

    loop.call_later(RETRY_SECONDS, retry)
