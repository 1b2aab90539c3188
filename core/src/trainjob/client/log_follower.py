"""Following the logs of all containers of a TrainJob: live, prefixed, resumed after a break, in bounded memory."""

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

_SILENCE_SECONDS = 120.0  # a training may be silent for long; then the stream is opened anew from where it was
_TAIL_LINES = 20
_LAST_PAUSE = 1.0  # seconds between tries to read the log of a container that has ended
_Instance = tuple[str, str, int]  # the pod's uid, the container's name, how often it was restarted before


class LogFollower:
    """Follows every container of one TrainJob's pods, one thread each, and hands the lines to `emit`.

    The cluster bounds the threads, as a process may wait for thousands of jobs: a container that finds no free one is
    read later, at the latest when it has ended, which is told as a line.

    Pods that appear late, containers that restart and streams that break are followed on. A slow `emit` makes the
    readers of this job wait, and through them the network; it keeps nobody else waiting. Trouble with logs never
    fails a job: it is tried again, and told as a line where that can't help.
    """

    def __init__(self, cluster: Cluster, namespace: str, emit: Callable[[LogLine], None]) -> None:
        """Nothing is followed yet.

        Args:
            cluster: where the pods are.
            namespace: the pods' namespace.
            emit: takes each line; called from several threads, one at a time.
        """
        self._cluster, self._namespace, self._emit = cluster, namespace, emit
        self._lock, self._telling = threading.Lock(), threading.Lock()
        self._observed = threading.Condition(self._lock)
        self._readings: dict[_Instance, _Reading] = {}
        self._ended: set[_Instance] = set()
        self._over: set[_Instance] = set()  # ended, and the container will not be started again
        self._restarts: dict[tuple[str, str], int] = {}
        self._waiting: set[tuple[str, str]] = set()  # to be restarted
        self._logs: dict[tuple[str, str, Moment], _Reading] = {}  # who reads which, told by its first line's time
        self._tails: dict[str, Tail] = {}
        self._streams: set[Any] = set()
        self._read_parts = 0  # of all logs: what shows that reading goes on
        self._queue_told = False
        self._stopped = threading.Event()

    def observe(self, change: ObjectEvent) -> None:
        """Look at a pod's newest state: follow what has started, note what has ended. Does not block."""
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
        # Of a pod that is being deleted, the name may be another's next.
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
            # One that failed before it was seen is still there as the previous one.
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
        """One that waits for others that may take hours is read now; there are threads for that."""
        if self._cluster.live_logs.cancel(reading):
            self._cluster.ended_logs.submit(reading)

    def catch_up(self, seconds: float) -> None:
        """Read the logs of containers that have ended to their ends; others go on.

        Args:
            seconds: when to give up: after so long without a line.
        """
        with self._lock:
            readings = [reading for key, reading in self._readings.items() if key in self._ended]
        self._join(readings, seconds)

    def finish(self, seconds: float) -> None:
        """After the job's end: read on until every ended container's log is read whole; then stop.

        Args:
            seconds: when to give up: after so long without a line, and with a container that does not end after so
                long in any case.
        """
        with self._lock:
            readings = list(self._readings.values())
        for reading in readings:
            self._hurry(reading)
        left = self._join(readings, seconds)
        self._apologize(left, seconds)
        self.stop()

    def _join(self, readings: Iterable[_Reading], seconds: float) -> list[_Reading]:
        """Waits for the readings' ends; those that have not come to theirs."""
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
            if reading.key in self._ended and self._telling.acquire(timeout=1.0):  # who is stuck there gets no more
                try:
                    self._emit(LogLine(reading.source, said))
                finally:
                    self._telling.release()

    def stop(self) -> None:
        """Stop following at once."""
        self._stopped.set()
        with self._lock:
            streams, readings = list(self._streams), list(self._readings.values())
            self._observed.notify_all()
        for reading in readings:
            self._cluster.live_logs.cancel(reading)
            self._cluster.ended_logs.cancel(reading)
        for stream in streams:
            with contextlib.suppress(OSError, ValueError, RuntimeError):  # it has just come to its end
                stream.shutdown()

    def tail(self, source: str) -> tuple[str, ...]:
        """The last lines seen of a source; the pod may be gone by now."""
        with self._lock:
            return self._tails[source].lines if source in self._tails else ()

    # -- one thread for each container instance ---------------------------------------------------------------------

    def _follow(self, job: _Reading) -> None:
        backoff, transcript, refusal = Backoff(longest=10.0), self._transcript(job), ""
        while not (self._stopped.is_set() or self._is_lost(job.key)):
            key = job.key
            ended = key in self._ended  # read before the stream: what is written until now will be in it
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
                    break  # no such log, and none to come
                self._pause(key, backoff.next(error))
                continue
            # The API server ends a stream alike when the container has ended and when the kubelet has gone: one more
            # look tells, where it can't be a restarted container's log that is looked at.
            if key == job.key and (ended or (self._ends_now(key) and key not in self._over)):
                break
        self._hand_out(job.source, transcript.rest())

    def _transcript(self, job: _Reading) -> Transcript:
        return Transcript(job.source, f"kubectl logs {job.pod} -c {job.container} -n {self._namespace}")

    def _pause(self, key: _Instance, seconds: float) -> None:
        """Before the next try; a short one once the container has ended, as who waits for the end gives up soon."""
        with self._observed:
            ended = key in self._ended
            self._observed.wait_for(
                lambda: self._stopped.is_set() or (key in self._ended and not ended),
                timeout=min(seconds, _LAST_PAUSE) if ended else seconds,
            )

    def _ends_now(self, key: _Instance) -> bool:
        """A followed stream has ended by itself: with its container, as the pod's status is about to say?

        If not (a server may end a stream of hours), the log is to be opened again; never before this is known, as a
        restarted container's log would be taken for this one's.
        """
        with self._observed:
            return self._observed.wait_for(lambda: key in self._ended or self._stopped.is_set(), timeout=2.0)

    def _read(self, job: _Reading, transcript: Transcript, backoff: Backoff) -> bool:
        """Reads one stream to its end; False when it is somebody else's to read."""
        previous = self._is_previous(job.key)
        stream = self._cluster.open_log(
            job.pod,
            self._namespace,
            job.container,
            follow=not previous and job.key not in self._over,  # else that is all there will be
            previous=previous,
            since=transcript.since,
            read_seconds=_SILENCE_SECONDS,
        )
        with self._lock:
            self._streams.add(stream)
        try:
            if self._stopped.is_set():  # which may not have seen it
                return True
            for lines in transcript.read(stream):
                self._read_parts += 1
                if not self._claim(transcript.first, job):
                    return False
                if transcript.jumped and self._ends_now(job.key):  # that is the next run's log, and this one was read
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
        """Whether a log that begins like that is this one's to read.

        A container that was restarted between its pod's last news and the opening of its log gave the next run's: who
        reads that goes on with it, and this one, which came for it, reads the one that was missed.
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
        """Whether it is the log of a run before the last one, which nobody can have any more."""
        return self._runs_after(key) > 1

    def _runs_after(self, key: _Instance) -> int:
        """How many runs of the container came after this one, or are about to: a waiting one has ended its last."""
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
    """The work of reading one container instance's log, and whether it is done."""

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
