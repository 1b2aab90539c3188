"""Position in a container's log, at which a new stream resumes."""

from __future__ import annotations

from datetime import datetime, timezone
from enum import Enum

Moment = tuple[int, bytes]
"""Time of a log line: seconds of the epoch, and nine digits of a fraction of a second."""

_NEVER: Moment = (-1, b"")


class Standing(Enum):
    """Relation of a line in a stream to the lines that were returned before."""

    NEW = "new"
    TOLD = "told"
    BEGUN = "begun"  # a part of it was returned


class Position:
    """Position in a log: the newest time, and the numbers of lines of its last two seconds.

    Attributes:
        first: time of the log's first line.
        lines: number of lines that were returned to their ends.
        jumped: whether the stream reached a new line without repeating a known one. In that case lines were lost in a
            rotated file, or it is another log.

    The API resumes at whole seconds. The stream starts one second earlier than needed, because two streams of a
    container may be stamped in another order than they are written. Repeated lines are counted and left out. A line
    that is newer than all known lines is new in any case: the kubelet serves its newest file only, so counted lines may
    be gone.

    If a clock is set back by more than that, the next line shows it. Until the clock passes the newest line again, a
    new stream starts at the log's beginning. The first lines after the clock was set back can't be requested if no
    stream was open.
    """

    def __init__(self) -> None:
        """Create the position of a log's beginning."""
        self.first: Moment | None = None
        self._newest = _NEVER
        self._now = self._before = self.lines = 0  # lines: of the newest second, of the one before, all
        self._set_back = False
        self._begun: Moment | None = None
        self._left = self._asked = 0
        self._resuming = self.jumped = False

    @property
    def since(self) -> datetime | None:
        """Time from which a stream resumes; None for the beginning of the log."""
        if self._set_back or self._newest is _NEVER:
            return None
        return datetime.fromtimestamp(self._newest[0] - 1, timezone.utc)

    @property
    def resuming(self) -> bool:
        """Whether the stream has not reached a new line yet."""
        return self._resuming

    def resume(self) -> None:
        """Prepare for a new stream that starts at [since][]."""
        self._left = self._asked = self.lines if self._set_back else self._before + self._now
        self._resuming, self.jumped = self._newest is not _NEVER, False

    def begin(self, moment: Moment) -> Standing:
        """Record that a line of this time begins, and return its relation to known lines."""
        newest = self._newest
        if self._resuming:
            if moment <= newest:
                if self._left:
                    self._left -= 1
                    return Standing.TOLD
                if moment == self._begun:
                    self._resuming = False
                    return Standing.BEGUN
            self._resuming, self.jumped = False, self._left == self._asked > 0
        self._begun, self.first = moment, self.first or moment
        if moment > newest:
            if moment[0] > newest[0]:
                self._before = self._now if moment[0] == newest[0] + 1 else 0
                self._now, self._set_back = 0, False
            self._newest = moment
        elif moment[0] < newest[0] - 1:
            self._set_back = True
        return Standing.NEW

    def end(self) -> None:
        """Record that the current line was returned to its end."""
        if self._begun is not None:
            self._now += self._begun[0] == self._newest[0]
            self._before += self._begun[0] == self._newest[0] - 1
        self._begun = None
        self.lines += 1
