"""Positions up to which a TrainJob's logs were written, for the process that continues the wait.

The engine stores them where it keeps state. The next process reads each log from its beginning, because progress and
results are in it. It marks the lines that were written already, so that the log continues instead of starting again.
"""

from __future__ import annotations

import hashlib
import heapq
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainjob.client.log_lines import LogLine, LogNotice
from trainjob.client.log_notices import format_time
from trainjob.client.log_position import ContainerRun, LinePosition, LogTime

STORE_SECONDS = 30.0
"""Interval of storing positions: after a SIGKILL, at most the lines of this time are written again."""
SETTLE_SECONDS = 5.0
"""Part of that interval between recording and storing positions.

A written line may still be in a pipe or a socket, and is lost there if its reader is killed at the same moment."""
_MAX_LOGS = 800  # about 56 kB of JSON: Airflow 3.3 warns above 64 KB, and annotations of an object hold 256 KiB
_MAX_LATER_RUNS = 100  # runs of a container after one, of which a position shows that the wait had begun
_CLOCK_SET_BACK, _IS_EXACT = 1, 2
_NANOSECONDS = 10**9


@dataclass(frozen=True)
class StoredPosition:
    """Position up to which a log was written, as it was stored.

    Attributes:
        first: time of the log's first line.
        newest: newest time of a line.
        lines_in_window: number of lines in the second of that time and in the one before.
        lines: number of lines since the log's first one.
        unfinished_bytes: bytes of the next line that were written, because it is long or had no line end.
        clock_set_back: see [trainjob.client.log_position.Position][].
        is_exact: whether no line was written after it. False if the process that wrote the log did not end in order.
    """

    first: LogTime
    newest: LogTime
    lines_in_window: int
    lines: int
    unfinished_bytes: int = 0
    clock_set_back: bool = False
    is_exact: bool = False

    def to_list(self) -> list[int]:
        """Return the position as JSON values.

        Times are in nanoseconds, and the newest one is relative to the first one.
        """
        first = _to_nanoseconds(self.first)
        flags = _CLOCK_SET_BACK * self.clock_set_back | _IS_EXACT * self.is_exact
        past_first = _to_nanoseconds(self.newest) - first
        return [first, past_first, self.lines_in_window, self.lines, self.unfinished_bytes, flags]

    @classmethod
    def from_list(cls, values: Any) -> StoredPosition | None:
        """Return the position of the values of [to_list][], or None if they are not such values."""
        if not (isinstance(values, list) and len(values) == 6 and all(type(one) is int and one >= 0 for one in values)):
            return None
        first, past_first, lines_in_window, lines, unfinished_bytes, flags = values
        try:
            format_time(newest := _to_log_time(first + past_first))
        except (ValueError, OverflowError):
            return None
        clock_set_back, is_exact = bool(flags & _CLOCK_SET_BACK), bool(flags & _IS_EXACT)
        return cls(_to_log_time(first), newest, lines_in_window, lines, unfinished_bytes, clock_set_back, is_exact)


def _do_nothing() -> None:
    pass


class LogPositions:
    """Positions up to which this process and earlier ones have written a TrainJob's logs.

    Its methods may be called from any thread.

    Attributes:
        on_change: called without arguments at the first line that is recorded after the start, and after each
            [to_dict][].
    """

    def __init__(self, log_id: str) -> None:
        """Create positions of a wait that no other process began.

        Args:
            log_id: ID of the log that the lines are written to, such as the uid of the TrainJob.
        """
        self._log_id, self._resumed_at = log_id, 0.0
        self._stored: dict[str, StoredPosition] = {}
        self._may_repeat = self._has_changed = False
        self._lock = threading.Lock()
        self._written: dict[ContainerRun, LinePosition] = {}
        self.on_change: Callable[[], None] = _do_nothing

    @classmethod
    def from_dict(cls, values: Any, log_id: str, resumed_at: float) -> LogPositions:
        """Create positions from the result of [to_dict][] that another process has stored.

        Values of another log, and values that cannot be read, are ignored. The logs are then written from their
        beginnings.

        Args:
            values: what was stored; None if nothing was.
            log_id: ID of the log that the lines are written to, such as the uid of the TrainJob.
            resumed_at: the current time, in seconds of the epoch.
        """
        positions = cls(log_id)
        if isinstance(values, Mapping) and values.get("log") == log_id and isinstance(values.get("logs"), Mapping):
            found = {str(key): StoredPosition.from_list(position) for key, position in values["logs"].items()}
            positions._stored = {key: position for key, position in found.items() if position is not None}
            positions._may_repeat, positions._resumed_at = not values.get("exact"), resumed_at
        return positions

    @property
    def is_stored(self) -> bool:
        """Whether these positions continue those that an earlier process has stored."""
        return bool(self._resumed_at)

    def record(self, line: LogLine) -> None:
        """Record that a line was written; lines of one log are recorded in order."""
        if line.position is None:
            return
        with self._lock:
            self._written[line.position.run] = line.position
            has_changed, self._has_changed = self._has_changed, True
        if not has_changed:
            self.on_change()

    def find_written_part(self, run: ContainerRun) -> WrittenPart | None:
        """Return the part of a log that an earlier process has written, or None."""
        position = self._stored.get(_hash_key(run.key))
        return WrittenPart(position, self._resumed_at) if position or self._may_repeat else None

    def has_read(self, key: tuple[str, str, int]) -> bool:
        """Return whether an earlier process has written lines of this or a later run.

        Args:
            key: key of the run, as in `ContainerRun`.
        """
        return any(_hash_key((*key[:2], run)) in self._stored for run in range(key[2], key[2] + _MAX_LATER_RUNS))

    def to_dict(self, *, is_exact: bool) -> dict[str, Any]:
        """Return the positions as JSON values, at most about 56 kB.

        Of more than 800 logs, those with the newest lines are included.

        Args:
            is_exact: whether this process writes no further line.
        """
        with self._lock:
            written, self._has_changed = dict(self._written), False
        own = {_hash_key(run.key): _to_stored(position, is_exact=is_exact) for run, position in written.items()}
        # Until this process has ended in order, it may have written lines of logs that have no newer position yet.
        earlier = {
            key: replace(position, is_exact=position.is_exact and is_exact) for key, position in self._stored.items()
        }
        newest = heapq.nlargest(_MAX_LOGS, {**earlier, **own}.items(), key=lambda item: item[1].newest)
        return {"log": self._log_id, "exact": is_exact, "logs": {key: position.to_list() for key, position in newest}}


class WrittenPart:
    """Part of a container's log that an earlier process has written.

    [mark][] marks its lines. If the log still begins with the same line, its lines are counted. If the kubelet has
    rotated it, their times are compared, and the lines of the last two seconds are counted.
    """

    def __init__(self, position: StoredPosition | None, resumed_at: float) -> None:
        """Create the part up to a position.

        Args:
            position: position up to which the log was written; None if it was not stored before the earlier process was
                killed.
            resumed_at: time until which that process may have written, in seconds of the epoch.
        """
        self._position, self._resumed_at = position, _to_log_time(int(resumed_at * _NANOSECONDS))
        self._has_begun = self._has_passed = self._is_over = self._is_rotated = False
        self._lines_left = position.lines if position else 0
        self._is_continued = self._is_line_written = False

    def mark(self, lines: list[LogLine]) -> list[LogLine]:
        """Return the log's next lines, with the written ones marked.

        A notice precedes the lines that may have been written, too, and another one follows them.
        """
        return lines if self._is_over else [marked for line in lines for marked in self._mark_line(line)]

    def _mark_line(self, line: LogLine) -> Iterator[LogLine]:
        position = line.position
        if position is not None and not self._has_begun:
            self._has_begun = True
            yield from self._compare_logs(line, position)
        if position is None or self._is_over:
            yield line
            return
        stored = self._position
        if not self._has_passed:
            if stored and self._is_written(line, position, stored):
                yield replace(line, is_written=True)
                return
            self._has_passed = True
            self._is_over = bool(stored and stored.is_exact) or position.time > self._resumed_at
            if not self._is_over:
                since = stored.newest if stored else position.time
                span = f"{format_time(since)} to {format_time(self._resumed_at)}"
                reason = "because the process that wrote this log before was killed or lost"
                yield _notice(line, f"lines from {span} may appear again here, {reason}")
        elif position.time > self._resumed_at:
            self._is_over = True
            yield _notice(line, "the following lines appear for the first time")
        yield line

    def _compare_logs(self, line: LogLine, position: LinePosition) -> Iterator[LogLine]:
        """Compare the first line of the log with that of the stored position."""
        stored = self._position
        if stored is None or position.first == stored.first:
            return
        self._is_rotated, self._lines_left = True, stored.lines_in_window
        self._is_over = position.first < stored.first  # the log of an earlier run
        if stored.clock_set_back:  # times do not show which lines are new
            self._position = None
        if position.first > stored.newest:
            reason = "the kubelet has rotated this log before this process could read them"
            yield _notice(line, f"lines after {format_time(stored.newest)} may be missing: {reason}")

    def _is_written(self, line: LogLine, position: LinePosition, stored: StoredPosition) -> bool:
        if not self._is_continued:
            self._is_line_written = self._begin_line(position.time, stored.newest)
        self._is_continued = line.continued
        return self._is_line_written or (
            0 < position.unfinished_bytes <= stored.unfinished_bytes
            and (not self._is_rotated or position.time == stored.newest)
        )

    def _begin_line(self, time: LogTime, newest: LogTime) -> bool:
        """Return whether the line that begins now was written completely."""
        if self._is_rotated and time > newest:
            return False
        if self._is_rotated and time[0] < newest[0] - 1:
            return True
        self._lines_left -= 1
        return self._lines_left >= 0


def _notice(line: LogLine, text: str) -> LogNotice:
    return LogNotice(line.source, text, container=line.container)


def _to_stored(position: LinePosition, *, is_exact: bool) -> StoredPosition:
    return StoredPosition(
        position.first,
        position.newest,
        position.lines_in_window,
        position.lines,
        position.unfinished_bytes,
        position.clock_set_back,
        is_exact,
    )


def _hash_key(key: tuple[str, str, int]) -> str:
    return hashlib.sha256("/".join(map(str, key)).encode()).hexdigest()[:12]


def _to_nanoseconds(time: LogTime) -> int:
    return time[0] * _NANOSECONDS + int(time[1])


def _to_log_time(nanoseconds: int) -> LogTime:
    seconds, fraction = divmod(nanoseconds, _NANOSECONDS)
    return seconds, b"%09d" % fraction
