"""A bounded queue of log lines that skips lines if they arrive too fast.

It reports the lines that it skips. This module has no threads and no clock of its own; [trainjob.client.log_writer][]
has both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from trainjob.client.log_lines import LogLine, LogNotice, byte_length


@dataclass(frozen=True)
class QueueLimits:
    """Capacity of a [LogQueue][], and how long readers wait before it skips lines.

    Attributes:
        lines: most lines in the queue.
        bytes: most bytes of text in the queue; a single longer line is still accepted.
        max_wait: seconds of congestion during which readers wait; after that, lines are skipped.
        kept_lines: newest lines of a source that are kept while its lines are skipped. Several sources that are skipped
            at once share them, but each keeps at least ten.
        kept_bytes: most bytes of those lines, shared in the same way; the newest line of a source is always kept.
    """

    lines: int = 1000
    bytes: int = 1 << 18
    max_wait: float = 10.0
    kept_lines: int = 100
    kept_bytes: int = 1 << 16


_DEFAULT_LIMITS = QueueLimits()
_KEPT_NOTICES = 10  # newest notices of a source that are kept while its lines are skipped


@dataclass(frozen=True)
class SkippedLines:
    """A gap in the written lines of one source.

    Attributes:
        source: source of the lines, as in [LogLine][].
        lines: number of skipped lines; the pieces of a very long line count as one.
        bytes: size of the skipped lines in bytes, with line endings.
        command: kubectl command that prints the log with these lines; empty if it is unknown.
    """

    source: str
    lines: int
    bytes: int
    command: str = ""

    def __str__(self) -> str:
        notice = (
            f"{self.lines:,} lines ({_size(self.bytes)}) were skipped here, "
            "because they arrived faster than this log can be written"
        )
        if self.source:
            notice = f"[{self.source}] {notice}"
        return f"{notice}; while the pod exists, read them with: {self.command}" if self.command else notice


def _size(count: int) -> str:
    if count < 1000:
        return f"{count} bytes"
    for unit in ("kB", "MB"):
        count_of_unit = count / 1000
        if count_of_unit < 1000:
            return f"{count_of_unit:.1f} {unit}"
        count = round(count_of_unit)
    return f"{count / 1000:.1f} GB"


@dataclass
class _SkippedSource:
    """State of a source whose lines are being skipped.

    It has the counts, the newest lines, and the notices before them.
    """

    lines: int = 0
    bytes: int = 0
    command: str = ""
    newest: deque[LogLine] = field(default_factory=deque)
    newest_bytes: int = 0
    notices: deque[LogNotice] = field(default_factory=partial(deque, maxlen=_KEPT_NOTICES))

    def add(self, line: LogLine) -> None:
        self.newest.append(line)
        self.newest_bytes += size_of(line)
        self.command = line.command or self.command

    def add_gap(self, gap: SkippedLines) -> None:
        """Add a gap, and count the lines before it as skipped, too, so that one gap remains."""
        self.trim(0, 0, least=0)
        self.lines, self.bytes, self.command = self.lines + gap.lines, self.bytes + gap.bytes, gap.command

    def trim(self, lines: int, size: int, *, least: int = 1) -> None:
        while len(self.newest) > least and (len(self.newest) > lines or self.newest_bytes > size):
            oldest = self.newest.popleft()
            self.newest_bytes -= size_of(oldest)
            if isinstance(oldest, LogNotice):  # says what else is missing
                self.notices.append(oldest)
                continue
            self.lines += not oldest.continued
            self.bytes += size_of(oldest)

    def release(self, source: str) -> Iterator[LogLine | SkippedLines]:
        if self.bytes:
            yield SkippedLines(source, self.lines, self.bytes, self.command)
        yield from (*self.notices, *self.newest)


_MIN_KEPT_LINES = 10  # lines of each source, however many sources are skipped at once


class LogQueue:
    """Queue of one job's lines from several sources, until they are written.

    While the queue is full, readers wait. They wait for at most [QueueLimits.max_wait][QueueLimits] seconds in which
    the queue does not drain to its half. Then the queue skips the lines of each source that continues to send, until
    the queue is empty. One [SkippedLines][] for each source takes their place, followed by the source's newest lines.
    """

    def __init__(self, limits: QueueLimits | None = None) -> None:
        """Create an empty queue.

        Args:
            limits: limits of the queue; None means the defaults.
        """
        self._limits = limits or _DEFAULT_LIMITS
        self._queue: deque[LogLine | SkippedLines] = deque()
        self._bytes = 0
        self._skipped_sources: dict[str, _SkippedSource] = {}
        self._congested_since: float | None = None
        self._max_wait = self._limits.max_wait

    def __len__(self) -> int:
        return len(self._queue) + sum(len(one.newest) for one in self._skipped_sources.values())

    def offer(self, line: LogLine, now: float, *, may_wait: bool = True) -> bool:
        """Queue a line, or skip it.

        Args:
            line: the line; lines of one source are offered in order.
            now: seconds of a monotonic clock.
            may_wait: False if the caller can't wait. If the queue is full, lines of its source are then skipped at
                once.

        Returns:
            False if the queue is full and the caller has to offer the line again, after a [take][] or after
            [seconds_to_skip][].
        """
        skipping = self._skipped_sources.get(line.source)
        if skipping is None:
            if self._has_space_for(line):
                self._queue.append(line)
                self._bytes += size_of(line)
                return True
            if self._congested_since is None:
                self._congested_since = now
            if may_wait and self.seconds_to_skip(now) > 0:
                return False
            skipping = self._skipped_sources[line.source] = _SkippedSource()
        skipping.add(line)
        skipping.trim(self._limits.kept_lines, self._limits.kept_bytes)
        return True

    def seconds_to_skip(self, now: float) -> float:
        """Return the seconds that a reader has to wait until lines are skipped instead."""
        began = now if self._congested_since is None else self._congested_since
        return max(0.0, began + self._max_wait - now)

    def take(self) -> LogLine | SkippedLines | None:
        """Return the next item to write, or None if the queue is empty."""
        if not self._queue:
            self._release()
        if not self._queue:
            return None
        first = self._queue.popleft()
        if isinstance(first, LogLine):
            self._bytes -= size_of(first)
        if len(self._queue) <= self._limits.lines // 2 and self._bytes <= self._limits.bytes // 2:
            self._congested_since = None
        return first

    def stop_blocking(self) -> None:
        """Stop making readers wait, because the job has ended.

        The newest lines are kept as before.
        """
        self._max_wait = 0.0

    def skip_all_but_newest(self) -> None:
        """Skip all queued lines except the newest lines of each source."""
        skipping, self._skipped_sources = self._skipped_sources, {}
        waiting = [*self._queue, *(item for name, one in skipping.items() for item in one.release(name))]
        self._queue.clear()
        self._bytes = 0
        for item in waiting:
            one = self._skipped_sources.setdefault(item.source, _SkippedSource())
            if isinstance(item, LogLine):
                one.add(item)
            else:
                one.add_gap(item)
        self._release()

    def _has_space_for(self, line: LogLine) -> bool:
        limits = self._limits
        return not self._queue or (len(self._queue) < limits.lines and self._bytes + size_of(line) <= limits.bytes)

    def _release(self) -> None:
        """Queue a notice for each gap, followed by the lines that were kept."""
        skipping, self._skipped_sources = self._skipped_sources, {}
        each = max(min(_MIN_KEPT_LINES, self._limits.kept_lines), self._limits.kept_lines // max(1, len(skipping)))
        for source, one in skipping.items():
            one.trim(each, self._limits.kept_bytes // len(skipping))
            self._queue.extend(one.release(source))
            self._bytes += one.newest_bytes + sum(map(size_of, one.notices))
        self._congested_since = None


def size_of(line: LogLine) -> int:
    """Return the number of bytes of a line's text, including its line end."""
    return byte_length(line.text) + (not line.continued)
