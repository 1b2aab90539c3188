"""Follower of all container logs of a TrainJob.

It returns lines while the containers run, each with its source. It resumes after a broken stream, and its memory is
bounded. If it can't read a log to its end, it emits a notice about the missing output.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainjob.client.backoff import Backoff
from trainjob.client.container_runs import ContainerRuns, RunKey
from trainjob.client.log_lines import LogLine, LogNotice, Tail
from trainjob.client.log_notices import ONE_PREVIOUS_LOG, POD_IS_GONE, LoggedContainer
from trainjob.client.log_position import LogTime
from trainjob.client.log_reader import LogReader
from trainjob.client.log_takeover import LogPositions
from trainjob.client.whole_log import fetch_last_line
from trainjob.errors import AdmissionRefused, ClusterError, InvalidSpec, NotFound, PermissionDenied
from trainjob.status.nested_fields import get_str
from trainjob.status.pods import container_statuses, rank_of, step_of

if TYPE_CHECKING:
    from trainjob.client.cluster import Cluster
    from trainjob.client.object_cache import ObjectEvent

_SILENCE_SECONDS = 120.0  # a training may print nothing for long; the stream is then reopened at its position
_TAIL_LINES = 20
_STATUS_SECONDS = 2.0  # by which the status of a pod may be later than the end of its log
_MAX_PAUSE_AFTER_END = 1.0  # seconds between attempts to read the log of a container that has ended
_MAX_OUTAGES = 60  # failed requests of an ended container's log, at least a minute, that do not count as silence
_MAX_ATTEMPTS_AFTER_END = 3  # to read the log of an ended container, one after the other and without a new byte
_MAX_TASKS = 1000  # whose logs one follower remembers, if they were read and their pods are gone
_REPORTED_REFUSALS = 6  # of a running container's log: after some seconds


class LogFollower:
    """Follower of every container of one TrainJob's pods; it passes the lines to `emit`.

    Each container is read on its own thread. The cluster bounds the number of threads, because a process may wait for
    thousands of jobs. If no thread is free, the container is read later, at the latest when it has ended. The follower
    then emits a line that says so.

    The follower also reads pods that appear late and containers that restart, and it resumes broken streams. A slow
    `emit` blocks the readers of this job, and through them the network; it delays no other job. An error with a log
    never fails a job: the follower retries. Each line is emitted once. If the follower can't prove that it has read all
    of a log, it emits one [LogNotice][] for it.
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
        self._runs = ContainerRuns()
        self._tasks: dict[RunKey, _ReadTask] = {}
        # The task that reads each log; the key is pod uid, container name and the time of the log's first line.
        self._task_by_log: dict[tuple[str, str, LogTime], _ReadTask] = {}
        self._tails: dict[str, Tail] = {}
        self._streams: set[Any] = set()
        self._parts_read = 0  # new chunks and lines of all logs: an increase shows that reading continues
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
        for status in statuses:
            name = get_str(status, "name")
            source = f"{step_of(pod)}-{rank_of(pod)}" + (f"/{name}" if len(statuses) > 1 else "")
            metadata = pod["metadata"]
            container = LoggedContainer(source, self._namespace, metadata["name"], metadata["uid"], name)
            runs = self._runs.observe(pod, status, deleted=event.deleted)
            with self._lock:
                self._start_tasks(container, runs.readable)
            self._report_skipped(container, runs.skipped)

    def _start_tasks(self, container: LoggedContainer, runs: Iterable[RunKey]) -> None:
        for run in runs:
            if run not in self._tasks:
                self._start(_ReadTask(self._follow, container, run))
            elif self._runs.has_ended(run):
                self._move_to_ended(self._tasks[run])
        self._drop_old_tasks()

    def _drop_old_tasks(self) -> None:
        """Drop the oldest logs that were read, which bounds the memory.

        Only logs of pods that do not exist any more are dropped.
        """
        excess = max(0, len(self._tasks) - _MAX_TASKS)
        is_over = (key for key, task in self._tasks.items() if task.done.is_set() and self._runs.is_deleted(key))
        if forgotten := {key: self._tasks[key] for key in itertools.islice(is_over, excess)}:
            self._tasks = {key: task for key, task in self._tasks.items() if key not in forgotten}
            self._task_by_log = {
                log: task for log, task in self._task_by_log.items() if task is not forgotten.get(task.key)
            }

    def _report_skipped(self, container: LoggedContainer, skipped: range) -> None:
        """Emit a notice about runs of a container that ended before they were observed."""
        unread = [run for run in skipped if not (self._positions and self._positions.has_read(container.key(run)))]
        if unread:
            reason = "the container had been restarted again before this wait began, or while it could not watch"
            notice = container.missing(reason, where=ONE_PREVIOUS_LOG, skipped_runs=len(unread))
            self._cluster.ended_log_executor.submit(lambda: self._emit_lines(container.source, [notice]))

    def _start(self, task: _ReadTask) -> None:
        self._tasks[task.key] = task
        if self._runs.has_ended(task.key):
            self._cluster.ended_log_executor.submit(task)
        elif not self._cluster.live_log_executor.submit(task) and not self._queue_reported:
            self._queue_reported = True
            limit = self._cluster.live_log_executor.max_threads
            notice = task.container.notice(
                f"{limit} logs are already being followed, which is the limit; "
                "this log is read later, at the latest when its container has ended"
            )
            self._cluster.ended_log_executor.submit(lambda: self._emit_lines(task.source, [notice]))

    def _move_to_ended(self, task: _ReadTask) -> None:
        """Move a queued task to the threads for ended logs, so that it starts soon.

        In its queue the task would wait for the logs of running containers, which may take hours.
        """
        if self._cluster.live_log_executor.cancel(task):
            self._cluster.ended_log_executor.submit(task)

    def finish(self, seconds: float, *, only_ended: bool = False) -> None:
        """Read the logs of all ended containers to their ends after the job's end, then stop.

        If a log was not read to its end, the follower emits a notice.

        Args:
            seconds: time without a line after which the method gives up. It also gives up on a container that does not
                end within this time.
            only_ended: whether to ignore containers that still run, because the caller is about to delete them.
        """
        with self._lock:
            tasks = [task for key, task in self._tasks.items() if not only_ended or self._runs.has_ended(key)]
        for task in tasks:
            self._move_to_ended(task)
        for task in self._join(tasks, seconds):
            self._report_missing(task, self._explain_unread(task, seconds), patience=1.0)
        self.stop()

    def _join(self, tasks: Iterable[_ReadTask], seconds: float) -> list[_ReadTask]:
        """Wait until the tasks are done, and return those that are not."""
        deadline, unfinished = time.monotonic() + seconds, []
        for task in tasks:
            progress = self._measure_progress(task)
            while not task.done.wait(max(0.0, deadline - time.monotonic())):
                previous, progress = progress, self._measure_progress(task)
                if progress == previous or not self._runs.has_ended(task.key):
                    unfinished.append(task)
                    break
                deadline = time.monotonic() + seconds
        return unfinished

    def _measure_progress(self, task: _ReadTask) -> tuple[int, int]:
        """Return numbers that change while a log is read, or while others are read first.

        They also change while the API server is unavailable, for a while.
        """
        read_before = 0 if task.started else self._cluster.ended_log_executor.completed
        return self._parts_read, read_before + min(task.outages, _MAX_OUTAGES)

    def _explain_unread(self, task: _ReadTask, seconds: float) -> str:
        if not self._runs.has_ended(task.key):
            return f"the container had not ended {seconds:g} s after its TrainJob"
        if not task.started:
            limit = self._cluster.ended_log_executor.max_threads
            return f"{limit} logs of ended containers were being read, which is the limit, and none ended"
        return f"no line of its log arrived for {seconds:g} s" + (f" ({task.error})" if task.error else "")

    def report(self, notice: LogNotice) -> None:
        """Emit a notice about the logs of the TrainJob."""
        self._emit_lines(notice.source, [notice])

    def stop(self) -> None:
        """Stop all tasks immediately."""
        self._stopped.set()
        self._runs.stop()
        with self._lock:
            streams, tasks = list(self._streams), list(self._tasks.values())
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
        """Read the log of a run to its proven end, or emit a notice."""
        backoff, missing, task.reader = Backoff(max_delay=10.0), "", self._create_reader(task)
        while not (self._stopped.is_set() or missing):
            ended = self._runs.has_ended(task.key)
            if self._runs.count_later_runs(task.key) > 1:
                missing = "the container was restarted again before its log was read to the end"
                break
            try:
                if self._read_to_end(task):
                    break
                if task.reads_without_proof == 0:
                    backoff.reset()
                if task.reads_without_proof == _MAX_ATTEMPTS_AFTER_END:
                    missing = "its last line is not the one that was received last, or its file was rotated"
                elif self._runs.has_ended(task.key):
                    self._pause(task.key, backoff.next())
            except NotFound:
                self._runs.mark_deleted(task.key)
                missing = "" if task.is_at_end else "its pod was deleted before the log was read to the end"
                break
            except (ClusterError, InvalidSpec) as error:
                task.outages += error.retryable
                missing = self._explain_refusal(task, error, ended=ended)
                self._pause(task.key, 0.0 if missing else backoff.next(error))
        self._emit_lines(task.source, task.reader.flush())
        if missing:
            self._report_missing(task, missing)

    def _read_to_end(self, task: _ReadTask) -> bool:
        """Read one stream, and return whether the run has ended and its log was read."""
        key, extent = task.key, task.reader.extent
        if not self._read(task):
            task.reader, task.is_at_end = self._create_reader(task), False
            task.reads_without_proof = task.reads_without_proof + 1 if key == task.key else 0
            return False
        if key != task.key:
            return False
        nothing_new = task.reader.extent == extent
        task.is_at_end = task.is_at_end and nothing_new
        # The log of a pod that is being deleted may be gone before the status reports the container's end.
        if self._runs.is_deleting(key):
            task.is_at_end = self._is_at_end(task, nothing_new=nothing_new)
        # The API server ends a stream in the same way if the container has ended, if the kubelet has stopped, and after
        # some hours.
        if not self._runs.wait_for_end(key, _STATUS_SECONDS):
            return False
        if task.is_at_end or self._is_at_end(task, nothing_new=nothing_new):
            return True
        task.reads_without_proof = task.reads_without_proof + 1 if nothing_new else 0
        return False

    def _create_reader(self, task: _ReadTask) -> LogReader:
        container, command = task.container, task.container.command()
        if self._positions is None:
            return LogReader(task.source, command, container=container)
        written_part = self._positions.find_written_part(task)
        return LogReader(task.source, command, task, written_part, container=container)

    def _explain_refusal(self, task: _ReadTask, error: ClusterError | InvalidSpec, *, ended: bool) -> str:
        """Return why the log can't be read, now or later; empty if another attempt may succeed.

        A missing permission is also reported while the container runs, because it may run for days.
        """
        if isinstance(error, InvalidSpec):  # a proxy has changed the pod in a response
            return f"its pod can't be requested: {error}"
        task.error = error.message
        refused = f"its log can't be read: {error.message}"
        task.refusals += isinstance(error, AdmissionRefused | PermissionDenied)
        if isinstance(error, PermissionDenied) and task.refusals == _REPORTED_REFUSALS:
            self._report_missing(task, refused)
        return refused if ended and task.refusals >= _MAX_ATTEMPTS_AFTER_END else ""

    def _report_missing(self, task: _ReadTask, reason: str, *, patience: float = -1.0) -> None:
        """Emit the one notice that output of this run may be missing.

        Args:
            task: the task that reads the run's log.
            reason: why the output is missing.
            patience: seconds to wait for a blocked `emit`; negative waits without a limit.
        """
        with self._lock:
            if task.is_reported:
                return
            task.is_reported = True
        later_runs, where = self._runs.count_later_runs(task.key), ""
        if self._runs.is_deleted(task.key):
            where = POD_IS_GONE
        elif later_runs > 1:
            where = ONE_PREVIOUS_LOG
        notice = task.container.missing(
            reason, after=task.reader.newest, where=where, previous=later_runs == 1, run=task.key[2]
        )
        self._emit_lines(task.source, [notice], patience)

    def _pause(self, key: RunKey, seconds: float) -> None:
        """Wait before the next attempt, or until the container ends or the follower stops.

        Once the container has ended, the pause is at most 1 s, because the wait for its log ends soon.
        """
        self._runs.pause(key, min(seconds, _MAX_PAUSE_AFTER_END) if self._runs.has_ended(key) else seconds)

    def _read(self, task: _ReadTask) -> bool:
        """Read one stream to its end, and return False if another task reads this log."""
        reader, state = task.reader, task.reader.save()
        later_runs = self._runs.count_later_runs(task.key)
        is_final = self._runs.has_ended_permanently(task.key)
        stream = self._cluster.open_log(
            task.container.pod,
            self._namespace,
            task.container.container,
            follow=not later_runs and not is_final,  # otherwise the log is complete
            previous=later_runs > 0,
            since=reader.since,
            read_seconds=_SILENCE_SECONDS,
        )
        with self._lock:
            self._streams.add(stream)
        may_be_next_run = not is_final
        try:
            if self._stopped.is_set():  # stop() may have missed this stream
                return True
            for lines in reader.read(stream):
                if reader.extent > task.extent:  # repeated lines are no progress: all streams may break at one place
                    task.extent = reader.extent
                    self._parts_read += 1
                if not self._is_own_log(reader.first, task):
                    return False
                if reader.may_be_other_log and may_be_next_run:
                    may_be_next_run = False
                    if self._is_log_of_next_run(task, state, later_runs):
                        reader.restore(state)
                        return True
                task.is_reported, task.refusals = False, 0  # a missing permission was granted
                self._emit_lines(task.source, lines)
                if self._stopped.is_set():
                    return True
        finally:
            with self._lock:
                self._streams.discard(stream)
            stream.close()
        return self._is_own_log(reader.first, task)

    def _is_at_end(self, task: _ReadTask, *, nothing_new: bool) -> bool:
        """Return whether the last line that was received is the last line of the log."""
        previous = self._runs.count_later_runs(task.key) > 0
        last_line = fetch_last_line(self._cluster, task.container, previous=previous)
        if not (last_line or task.reader.newest):  # an empty response is weak evidence, so read the log once more
            return task.reads_without_proof > 0
        return task.reader.has_read_to(last_line, nothing_new=nothing_new)

    def _is_log_of_next_run(self, task: _ReadTask, state: dict[str, Any], later_runs: int) -> bool:
        """Return whether a log without the expected lines is that of the next run.

        Otherwise the log was rotated.

        The status of a restart may be late. But the kubelet finds the current and the previous log of a container in
        one status (Kubernetes 1.36, `pkg/kubelet/kubelet_pods.go`, validateContainerLogStatus). So if it served the log
        of the next run, its previous log is that of this run, and does not end before this run began.

        Args:
            task: the task that reads the log.
            state: state of its reader before the gap, to which it returns if the request fails.
            later_runs: number of runs that followed this one when the log was opened.

        Raises:
            ClusterError: the request failed.
        """
        if later_runs:  # it is the previous log, and nothing shows of which run
            return True
        try:
            last_line = fetch_last_line(self._cluster, task.container, previous=True)
        except AdmissionRefused:  # there is no previous log
            return False
        except ClusterError:
            task.reader.restore(state)
            raise
        return bool(last_line) and not task.reader.began_after(last_line)

    def _is_own_log(self, first: LogTime | None, task: _ReadTask) -> bool:
        """Return whether this task is the one that reads the log with this first line.

        A container may restart between the last event of its pod and the opening of its log. The task for the ended run
        then opens the log of the next run, and keeps reading it. When the task for that next run opens the same log,
        the two tasks swap their keys, and the result is False. That task then reads the log of the ended run instead.
        If the first task has read its log to the end, they do not swap: the API server may return an earlier log.
        """
        if first is None:
            return True
        with self._lock:
            owner = self._task_by_log.setdefault((*task.key[:2], first), task)
            if owner is not task and not owner.done.is_set():
                owner.key, task.key = task.key, owner.key
                self._tasks[owner.key], self._tasks[task.key] = owner, task
        return owner is task

    def _emit_lines(self, source: str, lines: list[LogLine], patience: float = -1.0) -> None:
        with self._lock:
            self._tails.setdefault(source, Tail(_TAIL_LINES)).extend(lines)
        if not self._emit_lock.acquire(timeout=patience):  # a blocked emit gets no more lines
            return
        try:
            for line in lines:
                if self._stopped.is_set():
                    return
                self._emit(line)
                self._parts_read += 1
        finally:
            self._emit_lock.release()


_NO_READER = LogReader()


@dataclass(eq=False)
class _ReadTask:
    """Task that reads the log of one run of a container, and sets `done` at its end.

    Attributes:
        follow: function that reads the log.
        container: the container.
        key: the run.
        reader: reader of the log, while a thread reads it.
        error: message of the last failed request.
        refusals: number of refused requests, one after the other.
        outages: number of requests that failed because the API server was unavailable or replaced credentials.
        is_at_end: whether the last line of the log was the last one received when the last stream ended.
        extent: largest extent of the reader so far.
        reads_without_proof: number of streams that were read since the last new byte, without a proof of the log's end.
        is_reported: whether the notice about missing output was emitted.
        started: whether a thread reads the log.
        done: set when the log was read, or can't be read.
    """

    follow: Callable[[_ReadTask], None]
    container: LoggedContainer
    key: RunKey
    reader: LogReader = _NO_READER
    error: str = ""
    refusals: int = 0
    outages: int = 0
    is_at_end: bool = False
    extent: tuple[int, int] = (0, 0)
    reads_without_proof: int = 0
    is_reported: bool = False
    started: bool = False
    done: threading.Event = field(default_factory=threading.Event)

    @property
    def source(self) -> str:
        """Source of the lines."""
        return self.container.source

    def __call__(self) -> None:
        self.started = True
        try:
            self.follow(self)
        finally:
            self.reader = _NO_READER  # it holds parts of the log
            self.done.set()
