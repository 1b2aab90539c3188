"""Logs of one TrainJob during a wait: their lines, and the progress in them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from trainjob.client import Cluster, LogFollower, LogLine, LogNotice, LogPositions, ObjectEvent
from trainjob.frameworks.log_parser import JobLogParser
from trainjob.lifecycle.listener import Listener
from trainjob.status import Progress

_LOCK = threading.Lock()  # held while a follower is created, which takes some microseconds
_LOG_SECONDS = 10.0  # how long to continue to read the logs after the end of the TrainJob


class JobLogs:
    """Logs of one TrainJob, which are followed from the first pod on.

    Attributes:
        progress: last progress in the log; None if there is none.
    """

    def __init__(self, cluster: Cluster, namespace: str, listener: Listener, positions: LogPositions | None) -> None:
        """Create the logs of a TrainJob whose pods are not known yet.

        Args:
            cluster: the cluster of the TrainJob.
            namespace: its namespace.
            listener: callbacks for lines and progress.
            positions: see [trainjob.client.LogFollower][].
        """
        self._cluster, self._namespace, self._listener, self._positions = cluster, namespace, listener, positions
        self._follower: LogFollower | None = None
        self._is_stopped = False
        self.progress: Progress | None = None

    def _get_follower(self) -> LogFollower:
        with _LOCK:
            if self._follower is None:
                self._parser = JobLogParser()
                self._follower = LogFollower(self._cluster, self._namespace, self._on_line, self._positions)
                if self._is_stopped:
                    self._follower.stop()
            return self._follower

    def observe(self, event: ObjectEvent) -> None:
        """Start to follow the containers of a changed pod; it does not block."""
        self._get_follower().observe(event)

    def report(self, notice: LogNotice) -> None:
        """Emit a notice about the logs."""
        self._get_follower().report(notice)

    def finish(self, pods: Iterable[Mapping[str, Any]], *, only_ended: bool) -> None:
        """Read the logs of these pods to their ends, then stop.

        Args:
            pods: the pods that exist after the end of the TrainJob.
            only_ended: whether to ignore containers that still run, because the caller is about to end the TrainJob.
        """
        for pod in pods:
            self.observe(ObjectEvent(pod))
        self._get_follower().finish(_LOG_SECONDS, only_ended=only_ended)

    def tail(self, source: str) -> tuple[str, ...]:
        """Return the last lines that were received from a source, such as `node-0`."""
        return self._get_follower().tail(source)

    def stop(self) -> None:
        """Stop to follow the logs immediately."""
        with _LOCK:
            self._is_stopped, follower = True, self._follower
        if follower is not None:
            follower.stop()

    def _on_line(self, line: LogLine) -> None:
        if not isinstance(line, LogNotice) and (progress := self._parser.feed(line.text)):
            self.progress = progress
            (self._listener.on_earlier_progress if line.is_written else self._listener.on_progress)(progress)
        self._listener.on_log(line)
