"""Follower of all container logs of a TrainJob.

It returns lines while the containers run, each with its source. It resumes after a broken stream, and its memory is
bounded. If it can't read a log to its end, it emits a notice about the missing output.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from trainjob.client.backoff import Backoff
from trainjob.client.container_log import ContainerLog
from trainjob.client.log_end import LastLine
from trainjob.client.log_lines import LoggedContainer, LogLine, LogNotice, LogTime, format_time
from trainjob.client.log_notices import ONE_PREVIOUS_LOG, POD_IS_GONE
from trainjob.client.log_resume import OtherLog
from trainjob.client.whole_log import fetch_last_line
from trainjob.client.written_times import WrittenTimes
from trainjob.errors import AdmissionRefused, ClusterError, ClusterUnreachable, InvalidSpec, NotFound, PermissionDenied
from trainjob.status.nested_fields import get_str
from trainjob.status.pods import ContainerFailure, container_statuses
from trainjob.threads import RETRY_SECONDS

if TYPE_CHECKING:
    from trainjob.client.cluster import Cluster
    from trainjob.client.object_cache import ObjectEvent

_SILENCE_SECONDS = 120.0  # a training may print nothing for long; the stream is then reopened where it ended
_LINES_AFTER_GAP = 1000  # that are read of a log that is far behind; results and receipts are in the last lines
_STATUS_SECONDS = 2.0  # by which the status of a pod may be later than the end of its log
_MAX_PAUSE_AFTER_END = 1.0  # seconds between attempts to read the log of a container that has ended
_MAX_OUTAGES = 60  # failed requests of an ended container's log, at least a minute, that do not count as silence
_MAX_UNREACHABLE = 300  # the same, while the API server does not answer
_MAX_ATTEMPTS_AFTER_END = 3  # to read the log of an ended container, one after the other and without a new byte
_MAX_LOGS = 1000  # that one follower remembers, if they were read and their pods are gone
_REPORTED_REFUSALS = 6  # of a running container's log: after some seconds
_GONE_BEFORE_TAKEOVER = (
    "the kubelet has rotated this log, or the container was restarted again, before this process could read them"
)
_RESTARTED_AGAIN = "the container was restarted again before its log was read to the end"


class LogFollower:
    """Follower of every container of one TrainJob's pods; it passes the lines to `emit`.

    Each container is read on its own thread, one run after the other. The cluster bounds the number of threads, because
    a process may wait for thousands of jobs. If no thread is free, the container is read later, at the latest when it
    has ended. The follower then emits a line that says so.

    The follower also reads pods that appear late and containers that restart, and it resumes broken streams. A slow
    `emit` blocks the readers of this job, and through them the network; it delays no other job. An error with a log
    never fails a job: the follower retries. Each line is emitted once. If the follower can't prove that it has read all
    of a log, it emits one [LogNotice][] for it.

    If `emit` raises an exception, the first one is logged, and the follower goes on with the next line. At its end, it
    emits a notice with the number of these lines.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        emit: Callable[[LogLine], None],
        written_times: WrittenTimes | None = None,
        *,
        catch_up_seconds: float | None = None,
    ) -> None:
        """Create a follower that reads no log yet.

        Args:
            cluster: cluster of the pods.
            namespace: namespace of the pods.
            emit: function that takes each line; called from several threads, one call at a time.
            written_times: times up to which an earlier process has written the logs; None if there was none.
            catch_up_seconds: seconds after the job's end for which logs are read completely. Of those that were not
                read to their ends by then, only the last lines are read; None reads all lines.
        """
        self._catch_up_seconds = catch_up_seconds
        self._cluster, self._namespace, self._emit, self._written_times = cluster, namespace, emit, written_times
        self._changed, self._emit_lock = threading.Condition(), threading.Lock()
        self._logs: dict[tuple[str, str], ContainerLog] = {}
        self._parts_read = 0  # new chunks and lines of all logs: an increase shows that reading continues
        self._refused_lines, self._refusal = 0, ""  # lines for which `emit` has raised an exception, and the first one
        self._is_queue_reported, self._stopped = False, threading.Event()

    def observe(self, event: ObjectEvent) -> None:
        """Start to read the started containers of a changed pod, and note the ended ones.

        It does not block.
        """
        pod = event.object
        if pod is None or self._stopped.is_set():
            return
        for status in container_statuses(pod):
            container = LoggedContainer.of(pod, get_str(status, "name"))
            with self._changed:
                known = self._logs.get(container.key)
                log = known or self._add_log(container)
                later_runs = log.later_runs
                log.observe(pod, status, deleted=event.deleted)
                if known is None:
                    self._report_skipped_runs(log)
                if log.later_runs > later_runs:  # the stream may be that of the next run, and not end
                    _shut_down(log.stream)
                if log.is_scheduled and log.has_ended:
                    self._move_to_ended(log)
                elif log.is_readable and not (log.is_scheduled or event.deleted):
                    self._schedule(log)
                self._changed.notify_all()

    def _add_log(self, container: LoggedContainer) -> ContainerLog:
        self._drop_old_logs()
        newest_written = self._written_times.find(container.key) if self._written_times else None
        log = self._logs[container.key] = ContainerLog(container, newest_written, self._follow)
        return log

    def _report_skipped_runs(self, log: ContainerLog) -> None:
        """Emit a notice about runs that ended before this wait, except after a takeover."""
        if log.run and not (self._written_times and self._written_times.find(log.container.key)):
            reason = "the container had been restarted again before this wait began"
            self._emit_on_thread(log.container.missing(reason, where=ONE_PREVIOUS_LOG, skipped_runs=log.run))

    def _drop_old_logs(self) -> None:
        """Drop the oldest logs that were read, which bounds the memory.

        Only logs of pods that do not exist any more are dropped.
        """
        are_over = (key for key, log in self._logs.items() if log.is_deleted and not log.is_scheduled)
        for key in list(itertools.islice(are_over, max(0, len(self._logs) + 1 - _MAX_LOGS))):
            del self._logs[key]

    def _schedule(self, log: ContainerLog) -> None:
        log.is_scheduled = True
        if log.has_ended:
            self._cluster.ended_log_executor.submit(log)
            return
        executor = self._cluster.live_log_executor
        if not (executor.submit(log) or executor.is_stalled or self._is_queue_reported):
            self._is_queue_reported = True
            limit = executor.max_threads
            self._emit_on_thread(
                log.container.notice(
                    f"{limit} logs are already being followed, which is the limit; "
                    "this log is read later, at the latest when its container has ended"
                )
            )

    def _move_to_ended(self, log: ContainerLog) -> None:
        """Move a queued log to the threads for ended logs, so that it is read soon.

        In its queue it would wait for the logs of running containers, which may take hours.
        """
        if self._cluster.live_log_executor.cancel(log):
            self._cluster.ended_log_executor.submit(log)

    def finish(self, seconds: float, *, only_ended: bool = False, failure: ContainerFailure | None = None) -> None:
        """Read the logs of all ended containers to their ends after the job's end, then stop.

        If a log was not read to its end, the follower emits a notice.

        Args:
            seconds: time without a line after which the method gives up, while the API server answers. It also gives up
                on a container that does not end within this time.
            only_ended: whether to ignore containers that still run, because the caller is about to delete them.
            failure: the failure because of which the caller is about to delete the job; later runs of this container
                are left out.
        """
        with self._changed:
            for log in self._logs.values():
                if failure and log.is_of(failure):
                    log.ignored_from = failure.count
            logs = [log for log in self._logs.values() if not _is_read(log, only_ended=only_ended)]
            for log in logs:
                self._move_to_ended(log)
        self._skip_to_tails(logs, only_ended=only_ended)
        for log in self._join(logs, seconds, only_ended=only_ended):
            self._report_missing(log, self._explain_unread(log, seconds), patience=1.0)
        if self._refused_lines:
            count, reason = self._refused_lines, self._refusal
            self.report(LogNotice("", f"{count:,} lines of the log could not be processed; the first error: {reason}"))
        self.stop()

    def _skip_to_tails(self, logs: Collection[ContainerLog], *, only_ended: bool) -> None:
        """Wait until logs were read, and skip to the last lines of the others.

        A job may have printed gigabytes, and nobody waits for all of them.
        """
        if self._catch_up_seconds is None:
            return
        are_read = partial(_are_read, logs, only_ended=only_ended)
        if self._wait_for(are_read, self._catch_up_seconds):
            return
        with self._changed:
            for log in logs:
                # A log that no server serves at present is not behind.
                log.reads_tail = log.has_ended and log.is_readable and not log.is_unreachable
                if log.reads_tail:
                    _shut_down(log.stream)

    def _join(self, logs: Iterable[ContainerLog], seconds: float, *, only_ended: bool) -> list[ContainerLog]:
        """Wait until the logs were read, and return those that were not."""
        self._start_refused_threads(seconds)
        deadline, unfinished = time.monotonic() + seconds, []
        for log in logs:
            progress = self._measure_progress(log)
            is_read = partial(_is_read, log, only_ended=only_ended)
            while not self._wait_for(is_read, deadline - time.monotonic()):
                previous, progress = progress, self._measure_progress(log)
                if progress == previous or not log.has_ended:
                    unfinished.append(log)
                    break
                deadline = time.monotonic() + seconds
        return unfinished

    def _start_refused_threads(self, seconds: float) -> None:
        """Start the threads for logs whose start was refused before, for at most some seconds."""
        executors = self._cluster.live_log_executor, self._cluster.ended_log_executor
        deadline = time.monotonic() + seconds
        while any(executor.is_stalled for executor in executors) and time.monotonic() < deadline:
            self._wait_for(lambda: False, RETRY_SECONDS)
            for executor in executors:
                executor.start_queued()

    def _measure_progress(self, log: ContainerLog) -> tuple[int, ...]:
        """Return numbers that change while a log is read, or while others are read first.

        They also change while the API server is unavailable, for a while.
        """
        read_before = 0 if log.is_being_read else self._cluster.ended_log_executor.completed
        outages = min(log.outages, _MAX_UNREACHABLE if log.is_unreachable else _MAX_OUTAGES)
        return self._parts_read, read_before, outages

    def _explain_unread(self, log: ContainerLog, seconds: float) -> str:
        if not log.has_ended:
            return f"the container had not ended {seconds:g} s after its TrainJob"
        if self._cluster.ended_log_executor.is_stalled:
            return "no thread could be started to read its log"
        if not log.is_being_read:
            limit = self._cluster.ended_log_executor.max_threads
            return f"{limit} logs of ended containers were being read, which is the limit, and none ended"
        return f"no line of its log arrived for {seconds:g} s" + (f" ({log.error})" if log.error else "")

    def report(self, notice: LogNotice) -> None:
        """Emit a notice about the logs of the TrainJob."""
        self._emit_lines([notice])

    def _emit_on_thread(self, notice: LogNotice) -> None:
        """Emit a notice on a thread that may block."""
        self._cluster.ended_log_executor.submit(lambda: self.report(notice))

    def stop(self) -> None:
        """Stop all threads immediately."""
        with self._changed:
            self._stopped.set()
            logs = list(self._logs.values())
            self._changed.notify_all()
        for log in logs:
            self._cluster.live_log_executor.cancel(log)
            self._cluster.ended_log_executor.cancel(log)
            _shut_down(log.stream)

    def received_tail(self, failure: ContainerFailure) -> tuple[str, ...]:
        """Return the last 20 lines received of the failed run, even if its pod is gone."""
        with self._changed:
            for log in self._logs.values():
                if log.is_of(failure):
                    return log.received_tail(failure.count - 1)
        return ()

    def list_tails(self) -> list[tuple[str, ...]]:
        """Return the last 20 lines received of each container's newest run."""
        with self._changed:
            return [log.received_tail(log.run) for log in self._logs.values()]

    # -- one thread for each container --------------------------------------------------------------------------------

    def _follow(self, log: ContainerLog) -> None:
        """Read the logs of a container's runs, as long as there are any."""
        log.is_being_read, may_follow = True, not log.has_ended
        try:
            while self._may_read(log, may_follow=may_follow):
                missing = self._read_run(log)
                self._emit_log_lines(log, log.reader.flush())
                if missing:
                    self._report_missing(log, missing)
                self._begin_next_run(log)
        except Exception as error:
            logging.getLogger(__name__).exception("The log of pod %s could not be followed", log.container.pod)
            self._report_missing(log, f"{type(error).__name__}: {error}")
            with self._changed:
                log.begin_run(log.run + 1)
                log.is_scheduled = log.is_being_read = False
                self._changed.notify_all()

    def _begin_next_run(self, log: ContainerLog) -> None:
        """Continue with the next run whose log exists, and report the runs before it."""
        with self._changed:
            lost_runs = max(0, log.later_runs - 2)
            log.begin_run(log.run + 1 + lost_runs)
            self._changed.notify_all()
        self._report_lost_runs(log, lost_runs)

    def _report_lost_runs(self, log: ContainerLog, count: int) -> None:
        """Emit a notice about runs before this one of which nothing was read."""
        if count and log.run <= log.ignored_from:
            notice = log.container.missing(_RESTARTED_AGAIN, where=ONE_PREVIOUS_LOG, skipped_runs=count)
            self._emit_lines([notice])

    def _may_read(self, log: ContainerLog, *, may_follow: bool) -> bool:
        """Return whether this thread reads the log of another run.

        A thread for ended logs does not follow one: it moves the log to the threads for running containers.
        """
        with self._changed:
            may_read = log.is_readable and not self._stopped.is_set()
            if may_read and (may_follow or log.has_ended):
                return True
            log.is_scheduled = log.is_being_read = False
            if may_read:
                self._schedule(log)
            self._changed.notify_all()
            return False

    def _read_run(self, log: ContainerLog) -> str:
        """Read the log of a run to its end, and return why output is missing; empty if none is."""
        backoff = Backoff(max_delay=10.0)
        while not self._stopped.is_set():
            had_ended = log.has_ended
            if log.later_runs > 1:
                return _RESTARTED_AGAIN
            try:
                if self._read_to_end(log, backoff):
                    return ""
                if log.unproductive_reads == _MAX_ATTEMPTS_AFTER_END:
                    return "its last line is not the one that was received last, or its file was rotated"
            except NotFound:
                log.is_deleted = True
                return "" if log.is_at_end else "its pod was deleted before the log was read to the end"
            except (ClusterError, InvalidSpec) as error:
                log.outages += error.retryable
                if missing := self._explain_refusal(log, error, had_ended=had_ended):
                    return missing
                self._pause(log, backoff.next(error))
        return ""

    def _read_to_end(self, log: ContainerLog, backoff: Backoff) -> bool:
        """Read one stream, and return whether the run has ended and its log was read.

        Raises:
            ClusterError: the stream could not be opened, or broke.
        """
        extent = log.reader.extent
        try:
            self._read_stream(log)
        except OtherLog as other:
            self._handle_other_log(log, other.time)
            return False
        nothing_new = log.reader.extent == extent
        log.is_at_end = log.is_at_end and nothing_new
        # The log of a pod that is being deleted may be gone before the status reports the container's end.
        if log.is_deleting:
            log.is_at_end = self._is_at_end(log, nothing_new=nothing_new)
        # The API server ends a stream in the same way if the container has ended, if the kubelet has stopped, and after
        # some hours.
        if not self._wait_for(lambda: log.has_ended, _STATUS_SECONDS):
            return False
        if log.is_at_end or self._is_at_end(log, nothing_new=nothing_new):
            return True
        if nothing_new:
            log.unproductive_reads += 1
            self._pause(log, backoff.next())
        else:
            log.unproductive_reads = 0
            backoff.reset()
        return False

    def _is_at_end(self, log: ContainerLog, *, nothing_new: bool) -> bool:
        """Return whether the last line that was received is the last line of the log."""
        last_line = fetch_last_line(self._cluster, log.container, previous=log.later_runs > 0)
        if not (last_line or log.reader.newest):  # empty responses are weak evidence, so read the log three times
            return log.unproductive_reads > 1
        return log.reader.has_read_to(last_line, nothing_new=nothing_new)

    def _read_stream(self, log: ContainerLog) -> None:
        """Read one stream, and emit its lines.

        Raises:
            OtherLog: the stream does not continue the log.
            ClusterError: the stream could not be opened, or broke.
        """
        reader, previous, reads_tail = log.reader, log.later_runs > 0, log.reads_tail
        try:
            stream = self._cluster.open_log(
                log.container.pod,
                self._namespace,
                log.container.container,
                follow=not previous and not log.is_final,  # otherwise the log is complete
                previous=previous,
                since=reader.since,
                tail=_LINES_AFTER_GAP if reads_tail else None,
                read_seconds=_SILENCE_SECONDS,
            )
        except ClusterError as error:
            log.is_unreachable = isinstance(error, ClusterUnreachable)
            raise
        log.is_unreachable = False  # a stream that breaks or stays silent is that of a server that responds
        may_have_gap, log.may_have_gap = log.may_have_gap or reads_tail, False
        try:
            with self._changed:
                log.stream = stream
                is_outdated = previous != (log.later_runs > 0) or reads_tail != log.reads_tail
                if self._stopped.is_set() or is_outdated:
                    return
            if reads_tail and not log.is_gap_reported:
                log.is_gap_reported = True
                reason = f"it was far behind after the end of its TrainJob, so only {_LINES_AFTER_GAP:,} lines follow"
                self._report_missing(log, reason)
            for lines in reader.read(
                stream, may_have_gap=may_have_gap, known_logs=log.known_logs, is_gap_reported=reads_tail
            ):
                if reader.extent > log.extent:  # repeated lines are no progress: all streams may break at one place
                    log.extent = reader.extent
                    self._parts_read += 1
                log.is_reported, log.refusals = False, 0  # a missing permission was granted
                if after := log.find_gap_after_takeover():
                    notice = f"lines after {format_time(after)} may be missing: {_GONE_BEFORE_TAKEOVER}"
                    self._emit_lines([log.container.notice(notice)])
                self._emit_log_lines(log, lines)
                if self._stopped.is_set():
                    return
        finally:
            log.stream = None
            stream.close()

    def _handle_other_log(self, log: ContainerLog, first: LogTime) -> None:
        """Decide which log was read, after a stream that does not continue it.

        A container may restart before its log is opened, and the status of a restart may be late. But the kubelet finds
        the current and the previous log of a container in one status (Kubernetes 1.36,
        `pkg/kubelet/kubelet_pods.go`, validateContainerLogStatus). So if it served the log of the next run, its
        previous log is that of this run, and does not end before this run began.

        Args:
            log: the log.
            first: time of the stream's first line.

        Raises:
            ClusterError: the request for the previous log failed.
        """
        if log.reader.first is None:
            if log.continue_known_log(first):
                self._report_lost_runs(log, 1)
            return
        if log.later_runs:
            if first < log.reader.first:
                log.keep_reader_for_next_run()
            else:
                self._emit_log_lines(log, log.reader.flush())
                self._report_missing(log, _RESTARTED_AGAIN)
                log.read_extra_log()
            return
        last_line = LastLine()
        if not log.is_final:
            with contextlib.suppress(AdmissionRefused):  # there is no previous log
                last_line = fetch_last_line(self._cluster, log.container, previous=True)
        with self._changed:
            if last_line and not log.reader.began_after(last_line):
                log.observe_next_run()
            else:  # the file was rotated
                log.may_have_gap = True

    def _explain_refusal(self, log: ContainerLog, error: ClusterError | InvalidSpec, *, had_ended: bool) -> str:
        """Return why the log can't be read, now or later; empty if another attempt may succeed.

        A missing permission is also reported while the container runs, because it may run for days.
        """
        if isinstance(error, InvalidSpec):  # a proxy has changed the pod in a response
            return f"its pod can't be requested: {error}"
        log.error = error.message
        refused = f"its log can't be read: {error.message}"
        log.refusals += isinstance(error, AdmissionRefused | PermissionDenied)
        if isinstance(error, PermissionDenied) and log.refusals == _REPORTED_REFUSALS:
            self._report_missing(log, refused)
        return refused if had_ended and log.refusals >= _MAX_ATTEMPTS_AFTER_END else ""

    def _report_missing(self, log: ContainerLog, reason: str, *, patience: float = -1.0) -> None:
        """Emit the one notice that output of the run may be missing.

        Args:
            log: the log.
            reason: why the output is missing.
            patience: seconds to wait for a blocked `emit`; negative waits without a limit.
        """
        with self._changed:
            if log.is_reported or log.run >= log.ignored_from:
                return
            log.is_reported = True
        later_runs, where = log.later_runs, ""
        if log.is_deleted:
            where = POD_IS_GONE
        elif later_runs > 1:
            where = ONE_PREVIOUS_LOG
        notice = log.container.missing(
            reason, after=log.reader.newest, where=where, previous=later_runs == 1, run=log.run
        )
        self._emit_lines([notice], patience)

    def _pause(self, log: ContainerLog, seconds: float) -> None:
        """Wait before the next attempt, or until the run ends or the follower stops.

        Once the run has ended, the pause is at most 1 s, because the wait for its log ends soon.
        """
        if log.has_ended:
            self._wait_for(lambda: False, min(seconds, _MAX_PAUSE_AFTER_END))
        else:
            self._wait_for(lambda: log.has_ended, seconds)

    def _wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait for the condition or the stop, and return whether one of them has come."""
        with self._changed:
            return self._changed.wait_for(lambda: self._stopped.is_set() or condition(), max(0.0, seconds))

    def _emit_log_lines(self, log: ContainerLog, lines: list[LogLine]) -> None:
        with self._changed:
            log.reader.tail.extend(lines)
        self._emit_lines(lines)

    def _emit_lines(self, lines: Sequence[LogLine], patience: float = -1.0) -> None:
        if not self._emit_lock.acquire(timeout=patience):  # a blocked emit gets no more lines
            return
        is_stopped = self._stopped.is_set
        try:
            for line in lines:
                if is_stopped():
                    return
                try:
                    self._emit(line)
                except Exception as error:  # noqa: BLE001 - logged, and reported at the end
                    self._note_refused_line(error)
                self._parts_read += 1
        finally:
            self._emit_lock.release()

    def call_between_lines(self, callback: Callable[[], None]) -> None:
        """Call a function while no line is emitted, unless the follower was stopped.

        It blocks while a line is emitted. An exception of the function is logged.
        """
        with self._emit_lock:
            if self._stopped.is_set():
                return
            try:
                callback()
            except Exception as error:
                logging.getLogger(__name__).error("A callback of progress has failed", exc_info=error)

    def _note_refused_line(self, error: Exception) -> None:
        if not self._refused_lines:
            self._refusal = f"{type(error).__name__}: {error}"
            logging.getLogger(__name__).error("A callback of a log line has failed", exc_info=error)
        self._refused_lines += 1


def _shut_down(stream: Any) -> None:
    if stream is not None:
        with contextlib.suppress(OSError, ValueError, RuntimeError):  # the stream has just ended
            stream.shutdown()


def _are_read(logs: Iterable[ContainerLog], *, only_ended: bool) -> bool:
    return all(_is_read(log, only_ended=only_ended) for log in logs)


def _is_read(log: ContainerLog, *, only_ended: bool) -> bool:
    return not log.is_readable or (only_ended and not log.has_ended)
