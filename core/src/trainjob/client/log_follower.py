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
from trainjob.client.log_lines import LogLine, LogReader, Tail
from trainjob.client.log_position import LogTime
from trainjob.client.log_takeover import LogPositions
from trainjob.errors import AdmissionRefused, ClusterError, NotFound, PermissionDenied
from trainjob.status.nested_fields import get_int, get_mapping, get_str
from trainjob.status.pods import container_statuses, rank_of, restarts_in_place, step_of

if TYPE_CHECKING:
    from trainjob.client.cluster import Cluster
    from trainjob.client.object_cache import ObjectEvent

_SILENCE_SECONDS = 120.0  # a training may print nothing for long; the stream is then reopened at its position
_TAIL_LINES = 20
_MAX_PAUSE_AFTER_END = 1.0  # seconds between attempts to read the log of a container that has ended
_ContainerRun = tuple[str, str, int]  # the pod's uid, the container's name, and the restarts before this run


class LogFollower:
    """Follower of every container of one TrainJob's pods; it passes the lines to `emit`.

    Each container is read on its own thread. The cluster bounds the number of threads, because a process may wait for
    thousands of jobs. If no thread is free, the container is read later, at the latest when it has ended. The follower
    then emits a line that says so.

    The follower also reads pods that appear late and containers that restart, and it resumes broken streams. A slow
    `emit` blocks the readers of this job, and through them the network; it delays no other job. An error with a log
    never fails a job: the follower retries, or emits a line about the error if a retry can't help.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        emit: Callable[[LogLine], None],
        positions: LogPositions | None = None,
    ) -> None:
        """Create a follower that reads no log yet.

        Args:
            cluster: cluster of the pods.
            namespace: namespace of the pods.
            emit: function that takes each line; called from several threads, one call at a time.
            positions: positions up to which an earlier process has written the logs. Each line then has its own
                position, to be recorded when it is written.
        """
        self._cluster, self._namespace, self._emit, self._positions = cluster, namespace, emit, positions
        self._lock, self._emit_lock = threading.Lock(), threading.Lock()
        self._observed = threading.Condition(self._lock)
        self._tasks: dict[_ContainerRun, _ReadTask] = {}
        self._ended: set[_ContainerRun] = set()
        self._permanently_ended: set[_ContainerRun] = set()  # ended, and the container will not be restarted
        self._restarts: dict[tuple[str, str], int] = {}
        self._waiting_for_restart: set[tuple[str, str]] = set()  # containers that wait for a restart
        # The task that reads each log; the key is pod uid, container name and the time of the log's first line.
        self._task_by_log: dict[tuple[str, str, LogTime], _ReadTask] = {}
        self._tails: dict[str, Tail] = {}
        self._streams: set[Any] = set()
        self._parts_read = 0  # chunks and lines of all logs: an increase shows that reading continues
        self._queue_reported = False
        self._stopped = threading.Event()

    def observe(self, event: ObjectEvent) -> None:
        """Start to read the started containers of a changed pod, and note the ended ones.

        It does not block.
        """
        pod = event.object
        if pod is None or self._stopped.is_set():
            return
        statuses = container_statuses(pod)
        for container in statuses:
            self._observe_container(pod, container, multiple_containers=len(statuses) > 1, deleted=event.deleted)

    def _observe_container(
        self, pod: Mapping[str, Any], status: Mapping[str, Any], *, multiple_containers: bool, deleted: bool
    ) -> None:
        name, uid, restarts = get_str(status, "name"), get_str(pod, "metadata", "uid"), get_int(status, "restartCount")
        state = get_mapping(status, "state")
        waits = "waiting" in state and "terminated" in get_mapping(status, "lastState")
        done, run = "terminated" in state, (uid, name, restarts)
        # If the pod is being deleted, another pod may get its name.
        stays = done and not deleted and not get_str(pod, "metadata", "deletionTimestamp")
        with self._lock:
            self._restarts[uid, name] = restarts
            (self._waiting_for_restart.add if waits else self._waiting_for_restart.discard)((uid, name))
            if restarts:
                self._ended.add((uid, name, restarts - 1))
            if deleted or waits or done:
                self._ended.add(run)
            if stays and not (restarts_in_place(pod) and get_int(state, "terminated", "exitCode")):
                self._permanently_ended.add(run)
            self._observed.notify_all()
            if deleted:
                return
            source = f"{step_of(pod)}-{rank_of(pod)}" + (f"/{name}" if multiple_containers else "")
            current = [run] if waits or done or "running" in state else []
            # If a run failed before it was observed, its log is still available as the previous log.
            earlier = [(uid, name, restarts - 1)] if restarts else []
            for key in [*earlier, *current]:
                if key not in self._tasks:
                    self._start(_ReadTask(self._follow, get_str(pod, "metadata", "name"), name, source, key))
                elif key in self._ended:
                    self._move_to_ended(self._tasks[key])

    def _start(self, task: _ReadTask) -> None:
        self._tasks[task.key] = task
        if task.key in self._ended:
            self._cluster.ended_log_executor.submit(task)
        elif not self._cluster.live_log_executor.submit(task) and not self._queue_reported:
            self._queue_reported = True
            limit = self._cluster.live_log_executor.max_threads
            notice = LogLine(
                task.source,
                f"{limit} logs are already being followed, which is the limit; "
                "this log is read later, at the latest when its container has ended",
            )
            self._cluster.ended_log_executor.submit(lambda: self._emit_lines(task.source, [notice]))

    def _move_to_ended(self, task: _ReadTask) -> None:
        """Move a queued task to the threads for ended logs, so that it starts soon.

        In its queue the task would wait for the logs of running containers, which may take hours.
        """
        if self._cluster.live_log_executor.cancel(task):
            self._cluster.ended_log_executor.submit(task)

    def catch_up(self, seconds: float) -> None:
        """Read the logs of ended containers to their ends, and keep following the others.

        Args:
            seconds: time without a line after which the method gives up.
        """
        with self._lock:
            tasks = [task for key, task in self._tasks.items() if key in self._ended]
        self._join(tasks, seconds)

    def finish(self, seconds: float) -> None:
        """Read the logs of all ended containers to their ends after the job's end, then stop.

        If the log of an ended container was not read to its end, the follower emits a line that says so.

        Args:
            seconds: time without a line after which the method gives up. It also gives up on a container that does not
                end within this time.
        """
        with self._lock:
            tasks = list(self._tasks.values())
        for task in tasks:
            self._move_to_ended(task)
        unread = self._join(tasks, seconds)
        self._report_unread(unread, seconds)
        self.stop()

    def _join(self, tasks: Iterable[_ReadTask], seconds: float) -> list[_ReadTask]:
        """Wait until the tasks are done, and return those that are not."""
        deadline, unfinished = time.monotonic() + seconds, []
        for task in tasks:
            parts_before = self._parts_read
            while not task.done.wait(max(0.0, deadline - time.monotonic())):
                if task.key not in self._ended or parts_before == self._parts_read:
                    unfinished.append(task)
                    break
                parts_before, deadline = self._parts_read, time.monotonic() + seconds
        return unfinished

    def _report_unread(self, unread: Iterable[_ReadTask], seconds: float) -> None:
        notice = f"no line of this log arrived for {seconds:g} s; the rest of the log was not read"
        for task in unread:
            if task.key in self._ended and self._emit_lock.acquire(timeout=1.0):  # a blocked emit gets no more lines
                try:
                    self._emit(LogLine(task.source, notice))
                finally:
                    self._emit_lock.release()

    def stop(self) -> None:
        """Stop all tasks immediately."""
        self._stopped.set()
        with self._lock:
            streams, tasks = list(self._streams), list(self._tasks.values())
            self._observed.notify_all()
        for task in tasks:
            self._cluster.live_log_executor.cancel(task)
            self._cluster.ended_log_executor.cancel(task)
        for stream in streams:
            with contextlib.suppress(OSError, ValueError, RuntimeError):  # the stream has just ended
                stream.shutdown()

    def tail(self, source: str) -> tuple[str, ...]:
        """Return the last 20 lines of a source, even if its pod no longer exists."""
        with self._lock:
            return self._tails[source].lines if source in self._tails else ()

    # -- one thread for each run of a container -----------------------------------------------------------------------

    def _follow(self, task: _ReadTask) -> None:
        backoff, reader, reported = Backoff(max_delay=10.0), self._create_reader(task), ""
        while not (self._stopped.is_set() or self._is_unavailable(task.key)):
            key = task.key
            ended = key in self._ended  # read before the stream is opened: it will contain everything written until now
            try:
                if not self._read(task, reader, backoff):
                    reader = self._create_reader(task)
                    continue
            except NotFound:
                break  # the pod is gone, and its log with it
            except ClusterError as error:
                if isinstance(error, PermissionDenied) and str(error) != reported:
                    reported = str(error)
                    self._emit_lines(task.source, [LogLine(task.source, f"this log can't be read: {error}")])
                if isinstance(error, AdmissionRefused | PermissionDenied) and ended:
                    break  # there is no log to read, now or later
                self._pause(key, backoff.next(error))
                continue
            # The API server ends a stream in the same way if the container has ended and if the kubelet has stopped.
            # Another read shows the difference, unless it might return the log of a restarted container.
            if key == task.key and (ended or (self._wait_for_end(key) and key not in self._permanently_ended)):
                break
        self._emit_lines(task.source, reader.flush())

    def _create_reader(self, task: _ReadTask) -> LogReader:
        command = f"kubectl logs {task.pod} -c {task.container} -n {self._namespace}"
        if self._positions is None:
            return LogReader(task.source, command)
        return LogReader(task.source, command, task, self._positions.find_written_part(task))

    def _pause(self, key: _ContainerRun, seconds: float) -> None:
        """Wait before the next attempt, or until the container ends or the follower stops.

        Once the container has ended, the pause is at most 1 s, because the wait for its log ends soon.
        """
        with self._observed:
            ended = key in self._ended
            self._observed.wait_for(
                lambda: self._stopped.is_set() or (key in self._ended and not ended),
                timeout=min(seconds, _MAX_PAUSE_AFTER_END) if ended else seconds,
            )

    def _wait_for_end(self, key: _ContainerRun) -> bool:
        """Return whether a container has ended together with its log stream.

        The pod's status may be late, so this method waits up to 2 s for it. If the container still runs, its log has to
        be opened again, because a server may end a stream that lasts for hours. The log must not be opened before this
        is known: the log of a restarted container would be mistaken for this one. The method also returns True if the
        follower was stopped.
        """
        with self._observed:
            return self._observed.wait_for(lambda: key in self._ended or self._stopped.is_set(), timeout=2.0)

    def _read(self, task: _ReadTask, reader: LogReader, backoff: Backoff) -> bool:
        """Read one stream to its end, and return False if another task reads this log."""
        previous = self._is_previous(task.key)
        stream = self._cluster.open_log(
            task.pod,
            self._namespace,
            task.container,
            follow=not previous and task.key not in self._permanently_ended,  # otherwise the log is complete
            previous=previous,
            since=reader.since,
            read_seconds=_SILENCE_SECONDS,
        )
        with self._lock:
            self._streams.add(stream)
        try:
            if self._stopped.is_set():  # stop() may have missed this stream
                return True
            for lines in reader.read(stream):
                self._parts_read += 1
                if not self._is_own_log(reader.first, task):
                    return False
                if reader.has_gap and self._wait_for_end(task.key):  # this is the log of the next run
                    reader.discard_line()
                    return True
                backoff.reset()
                self._emit_lines(task.source, lines)
                if self._stopped.is_set():
                    return True
            backoff.reset()
        finally:
            with self._lock:
                self._streams.discard(stream)
            stream.close()
        return self._is_own_log(reader.first, task)

    def _is_own_log(self, first: LogTime | None, task: _ReadTask) -> bool:
        """Return whether this task is the one that reads the log with this first line.

        A container may restart between the last event of its pod and the opening of its log. The task for the ended run
        then opens the log of the next run, and keeps reading it. When the task for that next run opens the same log,
        the two tasks swap their keys, and the result is False. That task then reads the log of the ended run instead.
        """
        if first is None:
            return True
        with self._lock:
            owner = self._task_by_log.setdefault((*task.key[:2], first), task)
            if owner is not task:
                owner.key, task.key = task.key, owner.key
                self._tasks[owner.key], self._tasks[task.key] = owner, task
        return owner is task

    def _is_previous(self, key: _ContainerRun) -> bool:
        return self._count_later_runs(key) > 0

    def _is_unavailable(self, key: _ContainerRun) -> bool:
        """Return whether the log belongs to a run before the previous one.

        The API no longer serves such a log.
        """
        return self._count_later_runs(key) > 1

    def _count_later_runs(self, key: _ContainerRun) -> int:
        """Return how many runs of the container followed this one or are about to follow.

        A container that waits for a restart has ended its last run.
        """
        return self._restarts.get(key[:2], key[2]) + (key[:2] in self._waiting_for_restart) - key[2]

    def _emit_lines(self, source: str, lines: list[LogLine]) -> None:
        with self._lock:
            self._tails.setdefault(source, Tail(_TAIL_LINES)).extend(lines)
        with self._emit_lock:
            for line in lines:
                if self._stopped.is_set():
                    return
                self._emit(line)
                self._parts_read += 1


@dataclass(eq=False)
class _ReadTask:
    """Task that reads the log of one run of a container, and sets `done` at its end."""

    follow: Callable[[_ReadTask], None]
    pod: str
    container: str
    source: str
    key: _ContainerRun
    done: threading.Event = field(default_factory=threading.Event)

    def __call__(self) -> None:
        try:
            self.follow(self)
        finally:
            self.done.set()
