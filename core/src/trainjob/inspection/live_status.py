"""Live status of many TrainJobs, which is emitted whenever it changes.

It uses one informer for all TrainJobs and one for their pods. It follows a bounded number of logs of first ranks,
because these contain the progress. Nothing is polled. TrainJobs that do not start are diagnosed on the same schedule as
by a waiter.
"""

from __future__ import annotations

import math
import queue
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from trainjob.client import Cluster, EventHandler, LogFollower, LogLine, ObjectEvent
from trainjob.client.backoff import pod_watch_backoff
from trainjob.errors import NotFound
from trainjob.frameworks.log_parser import JobLogParser
from trainjob.inspection.summary import Summary, summarize
from trainjob.lifecycle.diagnosis import DiagnosisSchedule, refresh_diagnosis
from trainjob.lifecycle.queues import get_with_timeout
from trainjob.lifecycle.wait_policy import Limits, WaitPolicy
from trainjob.status import Phase, Progress, Verdict, read_trainer_status
from trainjob.status.nested_fields import get_int, get_str, true_conditions
from trainjob.status.pods import JOBSET_LABEL, rank_of, step_of
from trainjob.status.verdict import INITIALIZERS

_READ_ONLY_LIMITS = Limits(max_restarts=None)
# Longest wait of a thread. A signal that arrives just before the wait starts does not end it (CPython,
# Python/thread_pthread.h).
_MAX_BLOCKING_SECONDS = 1.0


@dataclass(frozen=True)
class LiveStatus:
    """Status of a TrainJob at one moment.

    Attributes:
        summary: its summary, with the reason why it does not start.
        ranks_ready: number of training pods that are ready or have succeeded.
        ranks: number of training pods, or of requested nodes if no pod exists; 0 if neither is known.
        progress: the last progress that its log or its trainer (`status.trainerStatus`) reported.
    """

    summary: Summary
    ranks_ready: int = 0
    ranks: int = 0
    progress: Progress | None = None

    @property
    def percent(self) -> float | None:
        """Progress in percent (0-100) from its log or its trainer's report; None if unknown."""
        if self.summary.phase is Phase.COMPLETE:
            return 100.0
        return self.progress.percent if self.progress else None

    def to_dict(self) -> dict[str, Any]:
        """Return the status as JSON values."""
        progress = {**self.progress.to_dict(), "percent": self.progress.percent} if self.progress else None
        counts = {"ranks_ready": self.ranks_ready, "ranks": self.ranks}
        return {**self.summary.to_dict(), "percent": self.percent, **counts, "progress": progress}


def watch(
    cluster: Cluster,
    namespace: str,
    names: Collection[str] = (),
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Generator[LiveStatus, None, None]:
    """Yield the status of TrainJobs immediately and after each change.

    The generator ends when all named TrainJobs have finished. `close` ends its watches before.

    Args:
        cluster: the cluster of the TrainJobs.
        namespace: their namespace.
        names: their names; empty means all that have not finished yet and all that are created later, without an end.
        clock: returns monotonic seconds; for tests.

    Raises:
        NotFound: a named TrainJob does not exist, or Kubeflow Trainer is not installed.
        ClusterError: no request can succeed any more.
    """
    cluster.trainjob_spec_fields()  # raises if there is no Trainer; the watch would never yield anything
    state = _WatchState(cluster, namespace, set(names), clock)
    try:
        state.open()
        while not state.is_finished:
            yield from state.process_next_event()
    finally:
        state.close()


@dataclass
class _WatchedJob:
    """State of one watched TrainJob."""

    policy: WaitPolicy
    logs: LogFollower
    verdict: Verdict = field(default_factory=lambda: Verdict(Phase.PENDING))
    diagnosis_schedule: DiagnosisSchedule = field(default_factory=DiagnosisSchedule)
    log_parser: JobLogParser = field(default_factory=JobLogParser)
    progress: Progress | None = None
    has_new_progress: bool = False  # the inbox contains an event for it
    last_status: LiveStatus | None = None

    @property
    def current_status(self) -> LiveStatus:
        """Current status of the TrainJob."""
        job, pods = self.policy.job, self.policy.pods.values()
        verdict = self.verdict
        summary = replace(
            summarize(job, pods), phase=verdict.phase, step=verdict.step, reason=verdict.reason, message=verdict.message
        )
        if verdict.phase is Phase.COMPLETE:
            summary = replace(summary, reason="", message="")
        training = [pod for pod in pods if step_of(pod) not in INITIALIZERS]
        ranks = len(training) or get_int(job, "spec", "trainer", "numNodes")
        reported = read_trainer_status(job)
        progress = self.progress.with_report(reported) if self.progress else reported
        return LiveStatus(summary, sum(map(_is_ready, training)), ranks, progress)


class _WatchState:
    """State of all watched TrainJobs; other threads only parse logs and fill the inbox."""

    def __init__(self, cluster: Cluster, namespace: str, names: set[str], clock: Callable[[], float]) -> None:
        self._cluster, self._namespace, self._names, self._clock = cluster, namespace, names, clock
        self._inbox: queue.SimpleQueue[tuple[str, str, Any]] = queue.SimpleQueue()
        self._jobs: dict[str, _WatchedJob] = {}  # by name
        self._pods: dict[str, dict[str, ObjectEvent]] = {}  # by TrainJob name and uid; earlier ones, too
        self._unfinished_names = set(names)
        self._keys: list[str | None] = [*names] or [None]
        self._job_handlers: list[EventHandler] = []
        self._pod_handlers: list[EventHandler] = []
        self._pod_watch_backoff = pod_watch_backoff()
        self._next_pod_watch = math.inf  # time at which a failed watch of the pods begins again

    def open(self) -> None:
        jobs = self._cluster.trainjob_informer(self._namespace, selector="")
        for key in self._keys:
            on_missing = partial(self._inbox.put, ("missing", key or "", ObjectEvent()))
            self._job_handlers.append(jobs.add_event_handler(key, partial(self._enqueue, "job"), on_missing))
        self._watch_pods()

    def _watch_pods(self) -> None:
        self._next_pod_watch = math.inf
        for event_handler in self._pod_handlers:
            event_handler.close()
        pods = self._cluster.pod_informer(self._namespace)
        self._pod_handlers = [pods.add_event_handler(key, partial(self._enqueue, "pod")) for key in self._keys]

    def close(self) -> None:
        for event_handler in (*self._job_handlers, *self._pod_handlers):
            event_handler.close()
        for job in self._jobs.values():
            job.logs.stop()

    @property
    def is_finished(self) -> bool:
        """Whether all named TrainJobs have finished."""
        return bool(self._names) and not self._unfinished_names

    def process_next_event(self) -> Iterator[LiveStatus]:
        """Wait for the next event, and yield the status of its TrainJob if it has changed."""
        if self._next_pod_watch <= self._clock():
            self._watch_pods()
        try:
            kind, name, event = get_with_timeout(self._inbox, self._seconds_until_next_check())
        except queue.Empty:
            for job in list(self._jobs.values()):
                if job.diagnosis_schedule.seconds_until_due(job.policy.waits_for, self._clock()) == 0:
                    job.diagnosis_schedule.record_diagnosis(self._clock())
                    refresh_diagnosis(self._cluster, job.policy, self._clock())
                elif job.policy.seconds_until_evaluation(self._clock()) == 0:
                    job.policy.evaluate(self._clock())
                yield from self._report_change(job)
            return
        if kind == "progress":
            self._on_progress(name)
        elif kind == "pod":
            self._on_pod(name, event)
        elif kind == "job":
            self._on_job(name, event)
        else:
            self._on_missing(name)
        if name in self._jobs:
            yield from self._report_change(self._jobs[name])

    def _report_change(self, job: _WatchedJob) -> Iterator[LiveStatus]:
        status = job.current_status
        if status == job.last_status:
            return
        job.last_status, name = status, status.summary.name
        if status.summary.phase.finished:
            self._unfinished_names.discard(name)
        if status.summary.phase is Phase.DELETED:
            self._remove_job(name)
        yield status

    def _seconds_until_next_check(self) -> float:
        now = self._clock()
        moments = (job.diagnosis_schedule.seconds_until_due(job.policy.waits_for, now) for job in self._jobs.values())
        return min([_MAX_BLOCKING_SECONDS, *(moment for moment in moments if moment is not None)])

    # -- from other threads ---------------------------------------------------------------------------------------

    def _enqueue(self, kind: str, event: ObjectEvent) -> None:
        path = ("metadata", "labels", JOBSET_LABEL) if kind == "pod" else ("metadata", "name")
        self._inbox.put((kind, get_str(event.object, *path), event))

    def _parse_log_line(self, name: str, job: _WatchedJob, line: LogLine) -> None:
        """Parse a log line on the thread that read it, so that many lines do not fill the inbox."""
        if progress := job.log_parser.feed(line.text):
            job.progress = progress
            if not job.has_new_progress:
                job.has_new_progress = True
                self._inbox.put(("progress", name, None))

    # -- on this thread -------------------------------------------------------------------------------------------

    def _on_missing(self, name: str) -> None:
        """Fetch a TrainJob that is not in the list.

        It may be newer than the list, and a damaged list may never have it.

        Raises:
            NotFound: the TrainJob does not exist.
        """
        found = self._cluster.get_trainjob(name, self._namespace)
        if found is None:
            raise NotFound(f"there is no TrainJob {self._namespace}/{name}", status=404, reason="NotFound")
        self._on_job(name, ObjectEvent(found))

    def _on_job(self, name: str, event: ObjectEvent) -> None:
        if event.error:
            raise event.error
        found, known = event.object, self._jobs.get(name)
        if found is None or (event.deleted and self._exists(found)):  # a list may be incomplete
            return
        if known is not None and get_str(known.policy.job, "metadata", "uid") == get_str(found, "metadata", "uid"):
            known.policy.observe_job(event, self._clock())
        elif not event.deleted:
            self._remove_job(name)
            self._add_job(name, event)

    def _exists(self, job: Mapping[str, Any]) -> bool:
        current = self._cluster.get_trainjob(get_str(job, "metadata", "name"), self._namespace)
        return get_str(current, "metadata", "uid") == get_str(job, "metadata", "uid")

    def _add_job(self, name: str, event: ObjectEvent) -> None:
        job = _WatchedJob(
            WaitPolicy(
                event.object or {}, _READ_ONLY_LIMITS, lambda verdict: setattr(job, "verdict", verdict), self._clock()
            ),
            LogFollower(self._cluster, self._namespace, lambda line: self._parse_log_line(name, job, line)),
        )
        job.policy.observe_job(event, self._clock())
        if job.verdict.phase.finished and not self._names:
            return  # it finished before the watch began
        self._jobs[name] = job
        for pod in self._pods.get(name, {}).values():
            self._observe_pod(job, pod)

    def _remove_job(self, name: str) -> None:
        if known := self._jobs.pop(name, None):
            known.logs.stop()

    def _on_pod(self, name: str, event: ObjectEvent) -> None:
        """Handle an event of a pod; a failed watch of pods begins again later."""
        if event.error and self._next_pod_watch == math.inf:  # each name has a handler, which gets the error
            self._next_pod_watch = self._clock() + self._pod_watch_backoff.next(event.error)
        if event.object is None:
            return
        uid = get_str(event.object, "metadata", "uid")
        if not event.deleted:
            self._pods.setdefault(name, {})[uid] = event
        elif known := self._pods.get(name):
            known.pop(uid, None)
            if not known:
                del self._pods[name]
        if name in self._jobs:
            self._observe_pod(self._jobs[name], event)

    def _observe_pod(self, job: _WatchedJob, event: ObjectEvent) -> None:
        created = get_str(event.object, "metadata", "creationTimestamp")
        if created < get_str(job.policy.job, "metadata", "creationTimestamp"):
            return  # a pod of an earlier TrainJob of this name
        job.policy.observe_pod(event, self._clock())
        if event.object is not None and rank_of(event.object) == 0 and not job.verdict.phase.finished:
            job.logs.observe(event)

    def _on_progress(self, name: str) -> None:
        if job := self._jobs.get(name):
            job.has_new_progress = False


def _is_ready(pod: Mapping[str, Any]) -> bool:
    return "Ready" in true_conditions(pod) or get_str(pod, "status", "phase") == "Succeeded"
