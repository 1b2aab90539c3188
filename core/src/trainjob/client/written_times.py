"""Times up to which a TrainJob's logs were written, for the process that continues the wait.

The engine stores them where it keeps state. The next process reads each log from its beginning, because progress and
results are in it. It marks the lines that were written already, so that the log continues instead of starting again.
Lines of the last second before the stored time are not marked: they may be written a second time, and none is lost.
"""

from __future__ import annotations

import hashlib
import heapq
import threading
from collections.abc import Callable, Mapping
from typing import Any

from trainjob.client.log_lines import LogLine, LogTime, format_time

STORE_SECONDS = 30.0
"""Interval of storing times: after a SIGKILL, at most the lines of this time are written again."""
SETTLE_SECONDS = 5.0
"""Part of that interval between recording and storing times.

A written line may still be in a pipe or a socket, and is lost there if its reader is killed at the same moment."""
_MAX_LOGS = 800  # about 56 kB of JSON: Airflow 3.3 warns above 64 KB, and annotations of an object hold 256 KiB
_NANOSECONDS = 10**9


def _do_nothing() -> None:
    pass


class WrittenTimes:
    """Newest time of the written lines of each container, by this process and earlier ones.

    Its methods may be called from any thread.

    Attributes:
        on_change: called without arguments at the first line that is recorded after the start, and after each
            [to_dict][].
    """

    def __init__(self, log_id: str) -> None:
        """Create the times of a wait that no other process began.

        Args:
            log_id: ID of the log that the lines are written to, such as the uid of the TrainJob.
        """
        self._log_id, self._is_stored, self._may_repeat, self._has_changed = log_id, False, False, False
        self._stored: dict[str, LogTime] = {}
        self._lock = threading.Lock()
        self._written: dict[tuple[str, str], LogTime] = {}
        self.on_change: Callable[[], None] = _do_nothing

    @classmethod
    def from_dict(cls, values: Any, log_id: str) -> WrittenTimes:
        """Create times from the result of [to_dict][] that another process has stored.

        Values of another log, and values that cannot be read, are ignored. The logs are then written from their
        beginnings.

        Args:
            values: what was stored; None if nothing was.
            log_id: ID of the log that the lines are written to, such as the uid of the TrainJob.
        """
        times = cls(log_id)
        if isinstance(values, Mapping) and values.get("log") == log_id and isinstance(values.get("times"), Mapping):
            found = {str(key): _parse_time(time) for key, time in values["times"].items()}
            times._stored = {key: time for key, time in found.items() if time is not None}
            times._is_stored, times._may_repeat = True, not values.get("exact")
        return times

    @property
    def resumption(self) -> str:
        """Sentence about the log of an earlier process; empty if there was none."""
        if not self._is_stored:
            return ""
        span = "lines of its last second"
        if self._may_repeat:
            span = f"it was killed or lost, so lines of its last {STORE_SECONDS + SETTLE_SECONDS:.0f} s"
        return f"another process has written its log until here; {span} may appear again"

    def record(self, line: LogLine) -> None:
        """Record that a line was written."""
        if line.time is None or line.log is None:
            return
        key = line.log.key
        with self._lock:
            if line.time > self._written.get(key, (0, b"")):
                self._written[key] = line.time
            has_changed, self._has_changed = self._has_changed, True
        if not has_changed:
            self.on_change()

    def find(self, key: tuple[str, str]) -> LogTime | None:
        """Return the newest time that an earlier process has written, or None.

        Args:
            key: the pod's uid and the container's name.
        """
        return self._stored.get(_format_key(key))

    def to_dict(self, *, is_exact: bool) -> dict[str, Any]:
        """Return the times as JSON values in nanoseconds, at most about 56 kB.

        Of more than 800 containers, those with the newest lines are included.

        Args:
            is_exact: whether this process writes no further line.
        """
        with self._lock:
            written, self._has_changed = dict(self._written), False
        times = {**self._stored, **{_format_key(key): time for key, time in written.items()}}
        newest = heapq.nlargest(_MAX_LOGS, times.items(), key=lambda item: item[1])
        numbers = {key: seconds * _NANOSECONDS + int(fraction) for key, (seconds, fraction) in newest}
        return {"log": self._log_id, "exact": is_exact, "times": numbers}


def _format_key(key: tuple[str, str]) -> str:
    return hashlib.sha256("/".join(key).encode()).hexdigest()[:12]


def _parse_time(nanoseconds: Any) -> LogTime | None:
    if type(nanoseconds) is not int or nanoseconds < 0:
        return None
    seconds, fraction = divmod(nanoseconds, _NANOSECONDS)
    time = seconds, b"%09d" % fraction
    try:
        format_time(time)
    except (ValueError, OverflowError, OSError):
        return None
    return time
