"""Place in a container's log at which the next stream resumes, and the lines that this stream repeats."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timezone
from enum import Enum

from trainjob.client.log_lines import LogTime


class LineStatus(Enum):
    """Relation of a line in a stream to the lines that were read before."""

    NEW = "new"
    KNOWN = "known"
    PARTIAL = "partial"  # a part of the line is known


class OtherLog(Exception):
    """A stream is not that of the expected log.

    It does not continue the log that was read before: it is the log of another run of the container, or the lines
    between were lost with a rotated file. Or it is a log that another reader has begun.

    Attributes:
        time: time of the stream's first line.
    """

    def __init__(self, time: LogTime) -> None:
        """Create the exception."""
        super().__init__(time)
        self.time = time


class ResumePoint:
    """The newest time of a log's lines, and the numbers of lines in its last two seconds.

    The API resumes at whole seconds. A stream starts one second earlier than needed, because the times of standard
    output and standard error may be in another order than the lines. The lines that it repeats are counted. But the
    kubelet serves its newest file only, so counted lines may be gone. So those of the newest time are counted
    separately: if another line of this time follows them, it is new, or the rest of an unfinished line. A line that is
    newer than all known lines is always new.

    The first line of a resumed stream lies between the first and the newest known line, if it is the same log.

    If a clock is set back by more than a second, a new stream starts at the log's beginning until the clock passes the
    newest line again. The same happens after a stream without any line.

    Attributes:
        first: time of the log's first line; None before it was read.
        newest: newest time of a line; None before the first line was read.
        lines: number of lines that were read completely.
        has_gap: whether the stream did not continue where the previous one ended.
        is_resuming: whether the stream was resumed, and its first new line has not arrived yet.
    """

    def __init__(self) -> None:
        """Create the beginning of a log."""
        self.first: LogTime | None = None
        self.newest: LogTime | None = None
        self.lines = 0
        self.has_gap = False
        self._last: LogTime | None = None  # time of the line that was read last
        self._is_unfinished = self._starts_over = self._is_clock_set_back = False
        self._in_newest_second = self._in_previous_second = self._of_newest_time = 0
        # The state of the current stream.
        self.is_resuming = self._is_first = self._may_have_gap = False
        self._older_left = self._newest_left = 0  # known lines to come: older than the newest time, and of this time
        self._known_logs: Collection[LogTime] = ()

    @property
    def since(self) -> datetime | None:
        """Time from which a stream resumes; None for the beginning of the log."""
        if self.newest is None or self._starts_over or self._is_clock_set_back:
            return None
        return datetime.fromtimestamp(self.newest[0] - 1, timezone.utc)

    def begin_stream(self, *, may_have_gap: bool = False, known_logs: Collection[LogTime] = ()) -> None:
        """Prepare for a stream that starts at [since][].

        Args:
            may_have_gap: whether lines may be missing between this stream and the previous one.
            known_logs: times of the first lines of logs that other readers have begun.
        """
        window = self._in_previous_second + self._in_newest_second
        known = self.lines if self.since is None else window
        self._older_left, self._newest_left = known - self._of_newest_time, self._of_newest_time
        self.is_resuming = self._is_first = self.newest is not None
        self._may_have_gap, self.has_gap, self._known_logs = may_have_gap, False, known_logs

    def end_stream(self) -> None:
        """Start the next stream at the log's beginning if this one had no line."""
        self._starts_over = self._is_first

    def begin_line(self, time: LogTime) -> LineStatus:
        """Record that a line of this time begins, and return its relation to the known lines.

        Raises:
            OtherLog: the stream does not continue this log, and `may_have_gap` is false; or it is a known log.
        """
        if self.newest is None and time in self._known_logs:
            raise OtherLog(time)
        if self.is_resuming and self.first and self.newest:
            if self._is_first:
                self._is_first = False
                self.has_gap = not self.first <= time <= self.newest
                if self.has_gap and not self._may_have_gap:
                    raise OtherLog(time)
            if time <= self.newest:
                if time < self.newest and self._older_left:
                    self._older_left -= 1
                    return LineStatus.KNOWN
                if time == self.newest and self._newest_left:
                    self._newest_left -= 1
                    return LineStatus.KNOWN
                if self._is_unfinished and time == self._last:
                    self.is_resuming = False
                    return LineStatus.PARTIAL
            self.is_resuming = False
        self._record(time)
        return LineStatus.NEW

    def add_lines(self, count: int, newest: LogTime, *, of_newest_time: int) -> None:
        """Record complete new lines of one second in the order of their times.

        The log has known lines, and none of them is newer than these.

        Args:
            count: number of lines.
            newest: time of the last one.
            of_newest_time: number of lines of this time.
        """
        self._record(newest)
        self._is_unfinished = False
        self._of_newest_time += of_newest_time
        self._in_newest_second += count
        self.lines += count

    def end_line(self) -> None:
        """Record that the line that began last was read completely."""
        if self._last is not None and self.newest is not None:
            self._of_newest_time += self._last == self.newest
            self._in_newest_second += self._last[0] == self.newest[0]
            self._in_previous_second += self._last[0] == self.newest[0] - 1
        self._is_unfinished = False
        self.lines += 1

    def _record(self, time: LogTime) -> None:
        newest = self.newest
        self.first, self._last, self._is_unfinished = self.first or time, time, True
        if newest is None or time[0] > newest[0]:
            follows = newest is not None and time[0] == newest[0] + 1
            self._in_previous_second = self._in_newest_second if follows else 0
            self._in_newest_second, self._is_clock_set_back = 0, False
        elif time[0] < newest[0] - 1:
            self._is_clock_set_back = True
        if newest is None or time > newest:
            self.newest, self._of_newest_time = time, 0
