"""Follower of all container logs of a TrainJob.

It returns lines while the containers run, each with its source. It resumes after a broken stream, and its memory is
bounded.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainjob.client.backoff import Backoff
from trainjob.client.log_lines import LogLine, Tail, Transcript
from trainjob.client.log_position import Moment
from trainjob.errors import AdmissionRefused, ClusterError, NotFound, PermissionDenied
from trainjob.status.pods import container_statuses, rank_of, restarts_in_place, step_of
from trainjob.status.reading import number, table, text

if TYPE_CHECKING:
    from trainjob.client.cluster import Cluster
    from trainjob.client.object_cache import ObjectEvent

_SILENCE_SECONDS = 120.0  # a training may print nothing for long; the stream is then reopened at its position
_TAIL_LINES = 20
_LAST_PAUSE = 1.0  # most seconds between attempts to read the log of a container that has ended
_Instance = tuple[str, str, int]  # the pod's uid, the container's name, and the restarts before this run


class LogFollower:
    """Follower of every container of one TrainJob's pods; it passes the lines to `emit`.

    Each container is read on its own thread. The cluster bounds the number of threads, because a process may wait for
    thousands of jobs. If no thread is free, the container is read later, at the latest when it has ended. The follower
    then emits a line that says so.

    The follower also reads pods that appear late and containers that restart, and it resumes broken streams. A slow
    `emit` blocks the readers of this job, and through them the network; it delays no other job. An error with a log
    never fails a job: the follower retries, or emits a line about the error if a retry can't help.
    """

    def __init__(self, cluster: Cluster, namespace: str, emit: Callable[[LogLine], None]) -> None:
        """Create a follower that reads no log yet.

        Args:
            cluster: cluster of the pods.
            namespace: namespace of the pods.
            emit: function that takes each line; called from several threads, one call at a time.
        """
        self._cluster, self._namespace, self._emit = cluster, namespace, emit
        self._lock, self._telling = threading.Lock(), threading.Lock()
        self._observed = threading.Condition(self._lock)
        self._readings: dict[_Instance, _Reading] = {}
        self._ended: set[_Instance] = set()
        self._over: set[_Instance] = set()  # ended, and the container will not be restarted
        self._restarts: dict[tuple[str, str], int] = {}
        self._waiting: set[tuple[str, str]] = set()  # containers that wait for a restart
        self._logs: dict[tuple[str, str, Moment], _Reading] = {}  # the reader of each log, by its first line's time
        self._tails: dict[str, Tail] = {}
        self._streams: set[Any] = set()
        self._read_parts = 0  # chunks and lines of all logs: an increase shows that reading continues
        self._queue_told = False
        self._stopped = threading.Event()

    def observe(self, change: ObjectEvent) -> None:
        """Start to read the started containers of a changed pod, and note the ended ones.

        It does not block.
        """
        pod = change.found
        if pod is None or self._stopped.is_set():
            return
        statuses = container_statuses(pod)
        for container in statuses:
            self._observe_container(pod, container, several=len(statuses) > 1, gone=change.gone)

    def _observe_container(
        self, pod: Mapping[str, Any], status: Mapping[str, Any], *, several: bool, gone: bool
    ) -> None:
        name, uid, restarts = text(status, "name"), text(pod, "metadata", "uid"), number(status, "restartCount")
        state = table(status, "state")
        waits = "waiting" in state and "terminated" in table(status, "lastState")
        done, instance = "terminated" in state, (uid, name, restarts)
        # If the pod is being deleted, another pod may get its name.
        stays = done and not gone and not text(pod, "metadata", "deletionTimestamp")
        with self._lock:
            self._restarts[uid, name] = restarts
            (self._waiting.add if waits else self._waiting.discard)((uid, name))
            if restarts:
                self._ended.add((uid, name, restarts - 1))
            if gone or waits or done:
                self._ended.add(instance)
            if stays and not (restarts_in_place(pod) and number(state, "terminated", "exitCode")):
                self._over.add(instance)
            self._observed.notify_all()
            if gone:
                return
            source = f"{step_of(pod)}-{rank_of(pod)}" + (f"/{name}" if several else "")
            begun = [instance] if waits or done or "running" in state else []
            # If a run failed before it was observed, its log is still available as the previous log.
            earlier = [(uid, name, restarts - 1)] if restarts else []
            for key in [*earlier, *begun]:
                if key not in self._readings:
                    self._start(_Reading(self._follow, text(pod, "metadata", "name"), name, source, key))
                elif key in self._ended:
                    self._hurry(self._readings[key])

    def _start(self, reading: _Reading) -> None:
        self._readings[reading.key] = reading
        if reading.key in self._ended:
            self._cluster.ended_logs.submit(reading)
        elif not self._cluster.live_logs.submit(reading) and not self._queue_told:
            self._queue_told = True
            most = self._cluster.live_logs.max_threads
            said = f"{most} logs are being followed already; the lines of this one come later, at the latest at its end"
            self._cluster.ended_logs.submit(lambda: self._hand_out(reading.source, [LogLine(reading.source, said)]))

    def _hurry(self, reading: _Reading) -> None:
        """Move a queued reading to the threads for ended logs, so that it starts soon.

        In its queue it would wait for the logs of running containers, which may take hours.
        """
        if self._cluster.live_logs.cancel(reading):
            self._cluster.ended_logs.submit(reading)

    def catch_up(self, seconds: float) -> None:
        """Read the logs of ended containers to their ends, and keep following the others.

        Args:
            seconds: time without a line after which the method gives up.
        """
        with self._lock:
            readings = [reading for key, reading in self._readings.items() if key in self._ended]
        self._join(readings, seconds)

    def finish(self, seconds: float) -> None:
        """Read the logs of all ended containers to their ends after the job's end, then stop.

        If the log of an ended container was not read to its end, the follower emits a line that says so.

        Args:
            seconds: time without a line after which the method gives up. It also gives up on a container that does not
                end within this time.
        """
        with self._lock:
            readings = list(self._readings.values())
        for reading in readings:
            self._hurry(reading)
        left = self._join(readings, seconds)
        self._apologize(left, seconds)
        self.stop()

    def _join(self, readings: Iterable[_Reading], seconds: float) -> list[_Reading]:
        """Wait until the readings are done, and return those that are not."""
        deadline, left = time.monotonic() + seconds, []
        for reading in readings:
            known = self._read_parts
            while not reading.done.wait(max(0.0, deadline - time.monotonic())):
                if reading.key not in self._ended or known == self._read_parts:
                    left.append(reading)
                    break
                known, deadline = self._read_parts, time.monotonic() + seconds
        return left

    def _apologize(self, unread: Iterable[_Reading], seconds: float) -> None:
        said = f"no line of this log came for {seconds:g} s: what is left of it was not read"
        for reading in unread:
            if reading.key in self._ended and self._telling.acquire(timeout=1.0):  # a blocked emit gets no more lines
                try:
                    self._emit(LogLine(reading.source, said))
                finally:
                    self._telling.release()

    def stop(self) -> None:
        """Stop all readings at once."""
        self._stopped.set()
        with self._lock:
            streams, readings = list(self._streams), list(self._readings.values())
            self._observed.notify_all()
        for reading in readings:
            self._cluster.live_logs.cancel(reading)
            self._cluster.ended_logs.cancel(reading)
        for stream in streams:
            with contextlib.suppress(OSError, ValueError, RuntimeError):  # the stream has just ended
                stream.shutdown()

    def tail(self, source: str) -> tuple[str, ...]:
        """Return the last 20 lines of a source, even if its pod is gone."""
        with self._lock:
            return self._tails[source].lines if source in self._tails else ()

    # -- one thread for each container instance ---------------------------------------------------------------------

    def _follow(self, job: _Reading) -> None:
        backoff, transcript, refusal = Backoff(longest=10.0), self._transcript(job), ""
        while not (self._stopped.is_set() or self._is_lost(job.key)):
            key = job.key
            ended = key in self._ended  # read before the stream is opened: it will contain everything written until now
            try:
                if not self._read(job, transcript, backoff):
                    transcript = self._transcript(job)
                    continue
            except NotFound:
                break  # the pod is gone, and its log with it
            except ClusterError as error:
                if isinstance(error, PermissionDenied) and str(error) != refusal:
                    refusal = str(error)
                    self._hand_out(job.source, [LogLine(job.source, f"this log can't be read: {error}")])
                if isinstance(error, AdmissionRefused | PermissionDenied) and ended:
                    break  # there is no log to read, now or later
                self._pause(key, backoff.next(error))
                continue
            # The API server ends a stream in the same way when the container has ended and when the kubelet has gone.
            # Another read shows the difference, unless it might return the log of a restarted container.
            if key == job.key and (ended or (self._ends_now(key) and key not in self._over)):
                break
        self._hand_out(job.source, transcript.rest())

    def _transcript(self, job: _Reading) -> Transcript:
        return Transcript(job.source, f"kubectl logs {job.pod} -c {job.container} -n {self._namespace}")

    def _pause(self, key: _Instance, seconds: float) -> None:
        """Wait before the next attempt, or until the container ends or the follower stops.

        Once the container has ended, the pause is at most 1 s, because the wait for its log ends soon.
        """
        with self._observed:
            ended = key in self._ended
            self._observed.wait_for(
                lambda: self._stopped.is_set() or (key in self._ended and not ended),
                timeout=min(seconds, _LAST_PAUSE) if ended else seconds,
            )

    def _ends_now(self, key: _Instance) -> bool:
        """Return whether a container has ended together with its log stream.

        The pod's status may be late, so this method waits up to 2 s for it. If the container still runs, its log has to
        be opened again, because a server may end a stream that lasts for hours. The log must not be opened before this
        is known: the log of a restarted container would be mistaken for this one. The method also returns True if the
        follower was stopped.
        """
        with self._observed:
            return self._observed.wait_for(lambda: key in self._ended or self._stopped.is_set(), timeout=2.0)

    def _read(self, job: _Reading, transcript: Transcript, backoff: Backoff) -> bool:
        """Read one stream to its end, and return False if the log belongs to another reading."""
        previous = self._is_previous(job.key)
        stream = self._cluster.open_log(
            job.pod,
            self._namespace,
            job.container,
            follow=not previous and job.key not in self._over,  # otherwise the log is complete
            previous=previous,
            since=transcript.since,
            read_seconds=_SILENCE_SECONDS,
        )
        with self._lock:
            self._streams.add(stream)
        try:
            if self._stopped.is_set():  # stop() may have missed this stream
                return True
            for lines in transcript.read(stream):
                self._read_parts += 1
                if not self._claim(transcript.first, job):
                    return False
                if transcript.jumped and self._ends_now(job.key):  # the next run's log; this run's was read
                    transcript.drop()
                    return True
                backoff.reset()
                self._hand_out(job.source, lines)
                if self._stopped.is_set():
                    return True
            backoff.reset()
        finally:
            with self._lock:
                self._streams.discard(stream)
            stream.close()
        return self._claim(transcript.first, job)

    def _claim(self, first: Moment | None, job: _Reading) -> bool:
        """Return whether a log with this first line belongs to this reading.

        A container may restart between the last event of its pod and the opening of its log. The reading then gets the
        log of the next run, and continues to read it. The reading that was started for that next run reads the missed
        log instead: the two swap their keys.
        """
        if first is None:
            return True
        with self._lock:
            reader = self._logs.setdefault((*job.key[:2], first), job)
            if reader is not job:
                reader.key, job.key = job.key, reader.key
                self._readings[reader.key], self._readings[job.key] = reader, job
        return reader is job

    def _is_previous(self, key: _Instance) -> bool:
        return self._runs_after(key) > 0

    def _is_lost(self, key: _Instance) -> bool:
        """Return whether the log belongs to a run before the previous one.

        The API no longer serves such a log.
        """
        return self._runs_after(key) > 1

    def _runs_after(self, key: _Instance) -> int:
        """Return how many runs of the container followed this one or are about to follow.

        A container that waits for a restart has ended its last run.
        """
        return self._restarts.get(key[:2], key[2]) + (key[:2] in self._waiting) - key[2]

    def _hand_out(self, source: str, lines: list[LogLine]) -> None:
        with self._lock:
            self._tails.setdefault(source, Tail(_TAIL_LINES)).extend(lines)
        with self._telling:
            for line in lines:
                if self._stopped.is_set():
                    return
                self._emit(line)
                self._read_parts += 1


@dataclass(eq=False)
class _Reading:
    """The work of reading the log of one run of a container, and whether it is done."""

    follow: Callable[[_Reading], None]
    pod: str
    container: str
    source: str
    key: _Instance
    done: threading.Event = field(default_factory=threading.Event)

    def __call__(self) -> None:
        try:
            self.follow(self)
        finally:
            self.done.set()
