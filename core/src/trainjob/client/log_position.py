"""How far a container's log was told, so that a new stream of it is told from there on."""

from __future__ import annotations

from datetime import datetime, timezone
from enum import Enum

Moment = tuple[int, bytes]
"""Seconds of the epoch and nine digits of a fraction, as the stamp of a line says."""

_NEVER: Moment = (-1, b"")


class Standing(Enum):
    """What a line of a stream is to one who was told the log up to a position."""

    NEW = "new"
    TOLD = "told"
    BEGUN = "begun"  # it was told in part


class Position:
    """How far a log was told: the newest time, and how many lines of its second and of the one before.

    Attributes:
        first: the time of the log's first line.
        lines: how many were told to their ends.
        jumped: the stream came to something new without repeating anything: lines were put away, or it is another log.

    The API resumes at whole seconds. It is asked for one more than needed, as two streams of a container may be stamped
    in another order than they are written; what comes again is counted off. A line that is newer than everything told
    is new in any case: the kubelet serves its newest file only, so lines that were counted may be gone.

    A clock that is set back by more is noticed by the next line; until it is past the newest line again, the log would
    be resumed at its beginning. What is written first after that, while no stream is open, can't be asked for.
    """

    def __init__(self) -> None:
        """At a log's beginning."""
        self.first: Moment | None = None
        self._newest = _NEVER
        self._now = self._before = self.lines = 0  # told: of the newest second, of the one before, of all
        self._set_back = False
        self._begun: Moment | None = None
        self._left = self._asked = 0
        self._resuming = self.jumped = False

    @property
    def since(self) -> datetime | None:
        """Where to resume; None for the beginning."""
        if self._set_back or self._newest is _NEVER:
            return None
        return datetime.fromtimestamp(self._newest[0] - 1, timezone.utc)

    @property
    def resuming(self) -> bool:
        """Whether the stream has not come to anything new yet."""
        return self._resuming

    def resume(self) -> None:
        """A new stream begins, from [since][] on."""
        self._left = self._asked = self.lines if self._set_back else self._before + self._now
        self._resuming, self.jumped = self._newest is not _NEVER, False

    def begin(self, moment: Moment) -> Standing:
        """A line of this time begins."""
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
        """The line that was begun is told to its end."""
        if self._begun is not None:
            self._now += self._begun[0] == self._newest[0]
            self._before += self._begun[0] == self._newest[0] - 1
        self._begun = None
        self.lines += 1
