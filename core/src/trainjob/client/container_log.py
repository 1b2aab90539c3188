"""State of a container's log: the runs that the pod's status shows, and how far their logs were read.

A run is one life of a container, between two restarts. Each run has its own log, and the API serves the logs of the
last two runs. They are read one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from trainjob.client.log_lines import LoggedContainer, LogTime
from trainjob.client.log_reader import LogReader
from trainjob.status.nested_fields import get_int, get_mapping, get_str
from trainjob.status.pods import ContainerFailure, restarts_in_place

_KNOWN_LOGS = 4  # of earlier runs; the API serves two logs
_NEVER_STARTED = "1970-01-01T00:00:00Z"  # `startedAt` of a container whose command could not start (containerd)


class ContainerLog:
    """Log of one container; the lock of its [trainjob.client.LogFollower][] guards it.

    Attributes:
        container: the container.
        run: number of the run whose log is read, from 0; after the log of the last run was read, that of the next one.
        reader: reader of the run's log.
        known_logs: readers of the logs of earlier runs, by the time of their first line.
        is_deleting: whether the pod is being deleted.
        is_deleted: whether the API no longer has the pod.
        is_final: whether the run has ended, and the container will not be restarted.
        is_scheduled: whether a thread reads the log, or will.
        is_being_read: whether a thread reads the log.
        stream: the stream that is being read; None if there is none.
        may_have_gap: whether the next stream is of the same log, even if it repeats no known line.
        extent: largest extent of the reader.
        is_at_end: whether the last line of the log was the last one received when the last stream ended.
        unproductive_reads: number of streams that were read since the last new byte, without a proof of the log's end.
        error: message of the last failed request.
        refusals: number of refused requests, one after the other.
        outages: number of requests that failed because the API server was unavailable or replaced credentials.
        is_unreachable: whether the last request for the log had no response.
        ignored_from: number of the run from which on missing output is not reported.
        is_reported: whether the notice about missing output of the run was emitted.
        reads_tail: whether only the last lines are read from now on, because the log is far behind.
        is_gap_reported: whether the notice about the lines before them was emitted.
    """

    def __init__(
        self, container: LoggedContainer, newest_written: LogTime | None, read: Callable[[ContainerLog], None]
    ) -> None:
        """Create the state of a container of which nothing is known.

        Args:
            container: the container.
            newest_written: newest time of the lines that an earlier process has written; None if it has written none.
            read: function that reads the log.
        """
        self.container, self._newest_written, self._read = container, newest_written, read
        self._is_first_log = True
        self._restarts, self._waits_for_restart, self._has_ended, self._has_output = -1, False, False, False
        self.run, self.reader = 0, self._create_reader()
        self._readers: dict[int, LogReader] = {}  # by run
        self._reader_of_next_run: LogReader | None = None
        self.known_logs: dict[LogTime, LogReader] = {}
        self._extra_logs = 0  # logs of later runs that were read for an earlier one
        self.is_deleting = self.is_deleted = self.is_final = False
        self.is_scheduled = self.is_being_read = self.is_unreachable = False
        self.outages, self.ignored_from, self.reads_tail = 0, math.inf, False
        self.stream: Any = None
        self.begin_run(0)

    def __call__(self) -> None:
        """Read the log; called on a thread."""
        self._read(self)

    def observe(self, pod: Mapping[str, Any], status: Mapping[str, Any], *, deleted: bool) -> None:
        """Record a container's status, which may be older than the recorded one."""
        state, restarts = get_mapping(status, "state"), get_int(status, "restartCount")
        self.is_deleted |= deleted
        self.is_deleting |= deleted or bool(get_str(pod, "metadata", "deletionTimestamp"))
        if restarts < self._restarts:  # the log of a later run was seen before its status
            return
        if self._restarts < 0:
            self.run = max(0, restarts - 1)
        if restarts > self._restarts:
            self._restarts, self._waits_for_restart, self._has_ended, self._has_output = restarts, False, False, False
        terminated, last = get_mapping(state, "terminated"), get_mapping(status, "lastState", "terminated")
        waits = "waiting" in state and bool(last)
        started = get_str(terminated or get_mapping(state, "running"), "startedAt")
        self._waits_for_restart |= waits
        self._has_ended |= bool(terminated) or waits or deleted
        self._has_output |= waits or (("running" in state or bool(terminated)) and started != _NEVER_STARTED)
        # If the pod is being deleted, another pod may get its name.
        may_restart = self.is_deleting or (restarts_in_place(pod) and get_int(terminated, "exitCode"))
        self.is_final = self._has_ended and (self.is_final or (bool(terminated) and not may_restart))

    def observe_next_run(self) -> None:
        """Record that the container was restarted after the run, before its status shows it."""
        if self._restarts <= self.run:
            self._restarts, self._has_output = self.run + 1, True
            self._waits_for_restart = self._has_ended = False

    @property
    def later_runs(self) -> int:
        """Number of runs of the container that followed the run or are about to follow.

        A container that waits for a restart has ended its last run.
        """
        return self._restarts + self._waits_for_restart - self.run

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended, or its pod was deleted."""
        return self.run < self._restarts or self._has_ended or self.is_deleted

    @property
    def is_readable(self) -> bool:
        """Whether the log of a run was not read to its end yet, and the API may serve it."""
        return self.run < self._restarts or (self.run == self._restarts and self._has_output)

    def begin_run(self, run: int) -> None:
        """Prepare to read the log of a run."""
        self._readers[self.run] = self.reader
        _drop_oldest(self._readers)
        self._remember_reader()
        self.run, self.refusals, self.error = run, 0, ""
        self._use_reader(self._reader_of_next_run or self._create_reader())
        self._reader_of_next_run = None
        self.is_reported = self.is_gap_reported = self.may_have_gap = False

    def is_of(self, failure: ContainerFailure) -> bool:
        """Return whether this is the log of a container that failed."""
        return (self.container.pod, self.container.container) == (failure.pod, failure.container)

    def received_tail(self, run: int) -> tuple[str, ...]:
        """Return the last 20 lines received of a run; empty if the run was long ago."""
        reader = self.reader if run == self.run else self._readers.get(run)
        return reader.tail.lines if reader else ()

    def _create_reader(self) -> LogReader:
        newest = self._newest_written
        # The times of standard output and standard error may be in another order than the lines.
        return LogReader(self.container, written_until=(newest[0] - 1, newest[1]) if newest else None)

    def find_gap_after_takeover(self) -> LogTime | None:
        """Return the newest written time if the first log begins after it, else None.

        It returns the time once for each process.
        """
        newest, first = self._newest_written, self.reader.first
        if not self._is_first_log or first is None:
            return None
        self._is_first_log = False
        return newest if newest and first > newest else None

    def keep_reader_for_next_run(self) -> None:
        """Start again with the log of the run; the reader has read that of the next run."""
        self._reader_of_next_run = self.reader
        self._use_reader(self._create_reader())

    def read_extra_log(self) -> None:
        """Start again with a later log; the rest of the run's log does not exist any more."""
        self._remember_reader()
        self._extra_logs += 1
        self._use_reader(self._create_reader())

    def continue_known_log(self, first: LogTime) -> bool:
        """Continue the log with this first time, which was read for an earlier run.

        Returns:
            Whether a run was missed: fewer logs than runs were read until this one.
        """
        self._use_reader(self.known_logs[first])
        is_missed, self._extra_logs = not self._extra_logs, max(0, self._extra_logs - 1)
        return is_missed

    def _remember_reader(self) -> None:
        if self.reader.first is not None:
            self.known_logs[self.reader.first] = self.reader
            _drop_oldest(self.known_logs)

    def _use_reader(self, reader: LogReader) -> None:
        self.reader, self.extent, self.unproductive_reads, self.is_at_end = reader, reader.extent, 0, False


def _drop_oldest(readers: dict[Any, LogReader]) -> None:
    for oldest in list(readers)[:-_KNOWN_LOGS]:
        del readers[oldest]
