"""Writer of the log lines of many jobs on one thread.

It keeps the order of each job's lines, serves the jobs fairly, and does not exceed a given rate.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for_futures
from types import TracebackType

from trainjob.client.log_lines import LogLine
from trainjob.client.log_queue import LogQueue, QueueLimits, SkippedLines
from trainjob.client.log_rate import RateLimit, TokenBucket
from trainjob.errors import OutOfThreads
from trainjob.threads import RETRY_SECONDS, start_thread

_LOGGER = logging.getLogger(__name__)

_BATCH = 100  # lines of one job that are written before the next job's turn
_SMALL_QUEUE_LINES = 50  # a job with at most 50 queued lines comes before jobs that print a lot
_DRAIN_SECONDS = 10.0  # after a job's end: the time for queued lines, before all but the newest are skipped
_NEWEST_SECONDS = 20.0  # after that: the time for the newest lines


class LogWriter:
    """Writer of the lines of all its channels on one daemon thread.

    The thread runs while a channel is open. If the operating system refuses to start it, the lines stay queued, and the
    next line or channel tries again. The channels share the rate limit and take turns. Channels with few lines
    come first, and of these, channels that finish. So neither a job that prints a lot nor the first lines of thousands
    of jobs delay the end of another job.

    Attributes:
        is_running: whether the thread runs.
    """

    def __init__(self, limit: RateLimit | None = None, queue_limits: QueueLimits | None = None) -> None:
        """Create a writer; it starts no thread yet.

        Args:
            limit: rate of writing; None means as fast as the log accepts lines.
            queue_limits: limits of each channel's queue.
        """
        self._limit, self._queue_limits = limit, queue_limits
        self._changed = threading.Condition()
        self._open: set[LogChannel] = set()
        self._ready: dict[LogChannel, None] = {}  # channels with lines to write, in order of their turns
        self._finishing: dict[LogChannel, None] = {}  # those of them that finish
        self.is_running = False

    def open(
        self,
        write: Callable[[str], None],
        on_written: Callable[[LogLine], None] = lambda _: None,
        on_skipped: Callable[[SkippedLines], None] = lambda _: None,
    ) -> LogChannel:
        """Open a channel for the lines of one job.

        Args:
            write: function that writes one line; called on the writer's thread only.
            on_written: called on the same thread with each line after it was written.
            on_skipped: called on the same thread with each gap after its notice was written.
        """
        channel = LogChannel(self, write, on_written, on_skipped, LogQueue(self._queue_limits))
        with self._changed:
            self._open.add(channel)
            self._ensure_thread()
        return channel

    def _ensure_thread(self) -> None:
        """Start the thread if it does not run; it waits for the lock that the caller holds."""
        if not self.is_running:
            with contextlib.suppress(OutOfThreads):
                start_thread(self._run, name="log-writer")
                self.is_running = True

    def schedule(self, channel: LogChannel) -> None:
        """Give a channel with lines to write its turn, after the channels that wait already."""
        with self._changed:
            if channel in self._open:
                self._ensure_thread()
                self._ready[channel] = None
                if channel.is_finishing:
                    self._finishing[channel] = None
                self._changed.notify()

    def prioritize(self, channel: LogChannel) -> None:
        """Move a channel that finishes before the others, if it has lines to write."""
        with self._changed:
            if channel in self._ready:
                self._finishing[channel] = None

    def discard(self, channel: LogChannel) -> None:
        """Remove a closed channel."""
        with self._changed:
            self._open.discard(channel)
            self._ready.pop(channel, None)
            self._finishing.pop(channel, None)
            self._changed.notify()

    def _run(self) -> None:
        bucket = TokenBucket(self._limit, time.monotonic()) if self._limit else None
        while channel := self._wait_for_channel():
            if bucket is None:
                channel.write_batch(_BATCH)
                continue
            if pause := bucket.seconds_to_wait(time.monotonic()):
                time.sleep(max(pause, bucket.pause_of_group))
            began = time.monotonic()
            for text in channel.write_batch(1):
                bucket.spend(text, began, time.monotonic())

    def _wait_for_channel(self) -> LogChannel | None:
        """Wait for a channel with lines to write; return None if no channel is open."""
        with self._changed:
            while not self._ready:
                if not self._open:
                    self.is_running = False
                    return None
                self._changed.wait()
            in_order = itertools.chain(self._finishing, self._ready)
            small = (channel for channel in in_order if channel.pending <= _SMALL_QUEUE_LINES)
            channel = next(small, next(iter(self._ready)))
            del self._ready[channel]
            self._finishing.pop(channel, None)
            return channel


class LogChannel:
    """Queue of one job's lines, from which the writer writes them to the job's log.

    It is a context manager that ends with [finish][]. Its methods may be called from any thread.

    Attributes:
        pending: number of queued lines.
        is_finishing: whether the channel closes when its queued lines are written.
    """

    def __init__(
        self,
        writer: LogWriter,
        write: Callable[[str], None],
        on_written: Callable[[LogLine], None],
        on_skipped: Callable[[SkippedLines], None],
        queue: LogQueue,
    ) -> None:
        """Create a channel; see [LogWriter.open][]."""
        self._writer, self._write, self._queue = writer, write, queue
        self._on_written, self._on_skipped = on_written, on_skipped
        self._lock = threading.Lock()
        self._changed: threading.Condition | None = None  # exists once a thread waits: there may be 10,000 channels
        self._is_scheduled = self._is_closed = self._is_writing = self._has_failed = False
        self.pending, self.is_finishing = 0, False
        self._drained: Future[None] | None = None  # exists once the channel finishes

    def __enter__(self) -> LogChannel:
        """Return the channel."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Write the queued lines; after a signal, close at once."""
        if kind is None or issubclass(kind, Exception):
            self.finish()
        else:
            self.close()

    def put(self, line: LogLine) -> None:
        """Queue a line of a container's log.

        If the queue is full, the method blocks until there is space or the queue starts to skip lines.
        """
        with self._lock:
            while not self._is_closed and not self._queue.offer(line, now := time.monotonic()):
                self._get_condition().wait(self._queue.seconds_to_skip(now))
            self._schedule()

    def report(self, text: str) -> None:
        """Queue a line of this project, such as a phase, without blocking."""
        with self._lock:
            self._queue.offer(LogLine("", text), time.monotonic(), may_wait=False)
            self._schedule()

    def stop_blocking(self) -> None:
        """Stop blocking readers while the queue is full, because the job has ended.

        Lines are skipped instead.
        """
        with self._lock:
            self._queue.stop_blocking()
            self._notify_waiting_threads()

    def finish(self) -> None:
        """Write the queued lines and close; if that takes long, skip all but the newest lines."""
        drained = self._start_finishing()
        if not self._writer.is_running:
            while self.write_batch(_BATCH):  # no thread can be started for it
                pass
        if not wait_for_futures([drained], _DRAIN_SECONDS).done:
            self._skip_all_but_newest()
            wait_for_futures([drained], _NEWEST_SECONDS)
        self.close()

    async def finish_async(self) -> None:
        """Do the same as [finish][], without blocking the event loop."""
        drained = asyncio.wrap_future(self._start_finishing())
        try:
            if not await self._wait_until_drained(drained, _DRAIN_SECONDS):
                self._skip_all_but_newest()
                await self._wait_until_drained(drained, _NEWEST_SECONDS)
        finally:
            self.close()

    async def _wait_until_drained(self, drained: asyncio.Future[None], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not drained.done() and (left := deadline - time.monotonic()) > 0:
            await asyncio.wait({drained}, timeout=left if self._writer.is_running else min(left, RETRY_SECONDS))
            with self._lock:
                self._schedule()
        return drained.done()

    def close(self) -> None:
        """Close the channel without writing further lines."""
        with self._lock:
            if self.pending and not self._is_closed and not self._writer.is_running:
                _LOGGER.warning("%d lines of a log were not written, because no thread could be started", self.pending)
            self._is_closed = True
            self._notify_waiting_threads()
        self._writer.discard(self)

    def wait_until_written(self, seconds: float) -> bool:
        """Wait until the closed channel writes no line any more, and return whether it does not.

        Args:
            seconds: maximum time to wait for a line that is being written.
        """
        with self._lock:
            return self._get_condition().wait_for(lambda: not self._is_writing, seconds)

    def write_batch(self, max_lines: int) -> list[str]:
        """Write up to `max_lines` lines and return them; called on the writer's thread."""
        with self._lock:
            items: list[LogLine | SkippedLines] = []
            while not self._is_closed and len(items) < max_lines and (item := self._queue.take()) is not None:
                items.append(item)
            self._is_writing = bool(items)
            self._notify_waiting_threads()
        texts = [item.text if isinstance(item, LogLine) and not item.source else str(item) for item in items]
        for item, text in zip(items, texts, strict=True):
            if not self._is_closed:
                self._write_one(text)
                self._report(item)
        with self._lock:
            self._is_scheduled = self._is_writing = False
            self._notify_waiting_threads()
            self._schedule()
            self._set_drained_if_idle()
        return texts

    def _get_condition(self) -> threading.Condition:
        self._changed = self._changed or threading.Condition(self._lock)
        return self._changed

    def _notify_waiting_threads(self) -> None:
        if self._changed is not None:
            self._changed.notify_all()

    def _write_one(self, text: str) -> None:
        try:
            self._write(text)
        except Exception:  # a failing log must end neither the wait nor other jobs' logs
            _LOGGER.debug("a log line could not be written", exc_info=True)

    def _report(self, item: LogLine | SkippedLines) -> None:
        try:
            if isinstance(item, LogLine):
                self._on_written(item)
            else:
                self._on_skipped(item)
        except Exception:  # it must not end the logs of the other jobs
            if not self._has_failed:
                _LOGGER.exception("a callback of a log failed; it is called for the next lines, too")
            self._has_failed = True

    def _schedule(self) -> None:
        self.pending = len(self._queue)
        if self.pending and not self._is_closed and not (self._is_scheduled and self._writer.is_running):
            self._is_scheduled = True
            self._writer.schedule(self)

    def _start_finishing(self) -> Future[None]:
        self.stop_blocking()
        with self._lock:
            self.is_finishing = True
            self._drained = drained = self._drained or Future()
            drained.set_running_or_notify_cancel()
            self._schedule()
            self._set_drained_if_idle()
        self._writer.prioritize(self)
        return drained

    def _set_drained_if_idle(self) -> None:
        if self._drained and not self._is_scheduled and not self._drained.done():
            self._drained.set_result(None)

    def _skip_all_but_newest(self) -> None:
        with self._lock:
            self._queue.skip_all_but_newest()
            self._notify_waiting_threads()
