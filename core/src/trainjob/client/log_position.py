"""Position in a container's log, at which a new stream resumes."""

from __future__ import annotations

from datetime import datetime, timezone
from enum import Enum
from typing import NamedTuple, Protocol

LogTime = tuple[int, bytes]
"""Time of a log line: seconds of the epoch, and nine digits of a fraction of a second."""

_NO_TIME: LogTime = (-1, b"")


class ContainerRun(Protocol):
    """One run of a container, whose log is read.

    Attributes:
        key: the pod's uid, the container's name, and the restarts before this run. It changes if it turns out that the
            log is that of another run.
    """

    key: tuple[str, str, int]


class LinePosition(NamedTuple):
    """Position in a log after one of its lines; see [Position][].

    Attributes:
        run: the run of the container that wrote the log.
        time: time of the line.
        first: time of the log's first line.
        newest: newest time of a line.
        lines_in_window: number of lines in the second of that time and in the one before.
        lines: number of lines that were returned completely.
        clock_set_back: whether the clock was set back, and has not passed the newest line again.
        unfinished_bytes: bytes of the line that were returned, if it has no end yet; otherwise 0.
    """

    run: ContainerRun
    time: LogTime
    first: LogTime
    newest: LogTime
    lines_in_window: int
    lines: int
    clock_set_back: bool
    unfinished_bytes: int


class LineStatus(Enum):
    """Relation of a line in a stream to the lines that were returned before."""

    NEW = "new"
    RETURNED = "returned"
    PARTIAL = "partial"  # a part of the line was returned


class Position:
    """Position in a log: the newest time, and the numbers of lines of its last two seconds.

    Attributes:
        first: time of the log's first line.
        lines: number of lines that were returned completely.
        has_gap: whether the stream reached a new line without repeating a known one. In that case lines were lost in a
            rotated file, or it is another log.
        begins_elsewhere: whether the stream did not begin with the first line that it should repeat, so that it may be
            another log whose lines have similar times.

    The API resumes at whole seconds. The stream starts one second earlier than needed, because the times of standard
    output and standard error may be in another order than the lines. Repeated lines are counted and left
    out. A line that is newer than all known lines is always new: the kubelet serves its newest file only, so counted
    lines may be gone.

    If a clock is set back by more than a second, the next line shows it. Until the clock passes the newest line again,
    a new stream starts at the log's beginning. The first lines after the clock was set back can't be requested if no
    stream was open.
    """

    def __init__(self) -> None:
        """Create the position of a log's beginning."""
        self.first: LogTime | None = None
        self._newest = _NO_TIME
        self._lines_in_newest_second = self._lines_in_previous_second = self.lines = 0
        self._clock_set_back = False
        self._current_time: LogTime | None = None
        self._line_time = _NO_TIME
        self._repeats_left = self._repeats_expected = 0
        # The first lines since the previous and since the newest second.
        self._first_since_previous = self._first_in_newest = _NO_TIME
        self._is_at_beginning = self._resuming = self.has_gap = self.begins_elsewhere = False

    @property
    def since(self) -> datetime | None:
        """Time from which a stream resumes; None for the beginning of the log."""
        if self._clock_set_back or self._newest is _NO_TIME:
            return None
        return datetime.fromtimestamp(self._newest[0] - 1, timezone.utc)

    @property
    def newest(self) -> LogTime | None:
        """Newest time of a line; None before the first line."""
        return None if self._newest is _NO_TIME else self._newest

    @property
    def resuming(self) -> bool:
        """Whether the stream was resumed and has not reached its first new line yet."""
        return self._resuming

    def resume(self) -> None:
        """Prepare for a new stream that starts at [since][]."""
        self._repeats_left = self._repeats_expected = (
            self.lines if self._clock_set_back else self._lines_in_previous_second + self._lines_in_newest_second
        )
        self._resuming, self.has_gap = self._newest is not _NO_TIME, False
        self._is_at_beginning, self.begins_elsewhere = self._resuming, False

    def begin_line(self, time: LogTime) -> LineStatus:
        """Record that a line of this time begins, and return its relation to known lines."""
        newest = self._newest
        if self._is_at_beginning:
            self._is_at_beginning = False
            self.begins_elsewhere = time != (self.first if self._clock_set_back else self._first_since_previous)
        if self._resuming:
            if time <= newest:
                if self._repeats_left:
                    self._repeats_left -= 1
                    return LineStatus.RETURNED
                if time == self._current_time:
                    self._resuming = False
                    return LineStatus.PARTIAL
            self._resuming, self.has_gap = False, self._repeats_left == self._repeats_expected > 0
        self._current_time = self._line_time = time
        self.first = self.first or time
        if time > newest:
            if time[0] > newest[0]:
                self._lines_in_previous_second = self._lines_in_newest_second if time[0] == newest[0] + 1 else 0
                self._lines_in_newest_second, self._clock_set_back = 0, False
                self._first_since_previous = self._first_in_newest if time[0] == newest[0] + 1 else time
                self._first_in_newest = time
            self._newest = time
        elif time[0] < newest[0] - 1:
            self._clock_set_back = True
        return LineStatus.NEW

    def end_line(self) -> None:
        """Record that the current line was returned completely."""
        if self._current_time is not None:
            self._lines_in_newest_second += self._current_time[0] == self._newest[0]
            self._lines_in_previous_second += self._current_time[0] == self._newest[0] - 1
        self._current_time = None
        self.lines += 1

    def after_line(self, run: ContainerRun, unfinished_bytes: int = 0) -> LinePosition:
        """Return the position after the line that has begun last.

        Args:
            run: the run of the container that wrote the log.
            unfinished_bytes: bytes of the line that were returned, if it has no end yet.
        """
        return LinePosition(
            run,
            self._line_time,
            self.first or _NO_TIME,
            self._newest,
            self._lines_in_previous_second + self._lines_in_newest_second,
            self.lines,
            self._clock_set_back,
            unfinished_bytes,
        )
