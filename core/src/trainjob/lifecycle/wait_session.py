"""State of one wait: events in, decisions out, and the outcome at its end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from trainjob.client import Cluster, EventHandler, LogNotice, ObjectEvent, SharedInformer, WrittenTimes
from trainjob.client.backoff import pod_watch_backoff
from trainjob.client.log_notices import pods_are_not_watched
from trainjob.errors import ClusterError, OutOfThreads
from trainjob.lifecycle.cancellation import Cancellation
from trainjob.lifecycle.cluster_check import check_cluster_of_missing
from trainjob.lifecycle.delivery import mark_exported
from trainjob.lifecycle.diagnosis import DiagnosisSchedule, refresh_diagnosis
from trainjob.lifecycle.end_checks import check_after_end
from trainjob.lifecycle.ending import choose_action, end_as_failed, end_at_limit
from trainjob.lifecycle.evidence import collect_evidence, list_final_pods
from trainjob.lifecycle.identity import JobReference
from trainjob.lifecycle.job_logs import JobLogs, Listener
from trainjob.lifecycle.wait_policy import Limits, WaitPolicy, WaitResult
from trainjob.manifest import labels
from trainjob.status import Outcome, Phase, build_outcome, read_trainer_status
from trainjob.status.nested_fields import get_str
from trainjob.status.pods import belongs_to_job
from trainjob.status.verdict import check_end
from trainjob.threads import RETRY_SECONDS

_LOCK = threading.Lock()  # held for some microseconds, while a session begins to watch pods or to follow logs
_NO_EVENT = ObjectEvent()


class WaitSession:
    """State of the wait for one TrainJob, shared by the two drivers of the wait."""

    def __init__(
        self,
        cluster: Cluster,
        reference: JobReference,
        limits: Limits,
        listener: Listener,
        now: float,
        written_times: WrittenTimes | None = None,
    ) -> None:
        """Create a session that watches nothing yet; [open][] adds the event handlers."""
        self._cluster, self._reference, self._limits, self._listener = cluster, reference, limits, listener
        self._written_times = written_times
        if reference.cluster == cluster.identity:
            cluster.expect_acceptance()  # the process that has submitted the TrainJob used the same connection
        self._job_logs: JobLogs | None = None
        self.policy = WaitPolicy(_placeholder_job(reference), limits, listener.on_phase, now, job_was_read=False)
        self._event_handlers: list[EventHandler] = []
        self._known_job: Mapping[str, Any] | None = None  # as last seen by the event handlers
        self._closed = self._follows_unlabelled_job = False
        self._next_pod_watch: float | None = None  # time at which a failed watch of the pods begins again
        self._pod_watch_backoff, self._is_pod_watch_reported = pod_watch_backoff(), False
        self._diagnosis_schedule = DiagnosisSchedule()
        self._reported_at = ""  # time of the newest progress in the TrainJob's status

    def open(self, deliver: Callable[[tuple[str, ObjectEvent]], None]) -> None:
        """Add the event handlers.

        No request is sent for this TrainJob alone, because the shared list contains it. If the list does not contain
        it, or an event says that it was deleted, "missing" is delivered, and the caller calls [fetch_job_event][].

        Args:
            deliver: called with ("job", "pod" or "missing", event), from other threads; it must not block.
        """
        self._deliver = deliver
        self._watch_job(self._cluster.trainjob_informer(self._reference.namespace))

    def _watch_job(self, informer: SharedInformer) -> None:
        self._keep_event_handler(informer.add_event_handler(self._reference.name, self._on_job, self._on_missing))

    def fetch_job_event(self, event: ObjectEvent) -> ObjectEvent:
        """Fetch the TrainJob by its name and return it as an event (blocking I/O).

        A watch also reports a deletion if the TrainJob has lost the label that the watch selects, and a list may be
        incomplete. So only this request decides. If the TrainJob has lost the label, the wait follows it in the watch
        of all TrainJobs of the namespace from now on, and logs that once.

        Args:
            event: the event that reports that the TrainJob is missing.

        Returns:
            The TrainJob. The event says that it was deleted if it does not exist, or if another TrainJob has its name.

        Raises:
            WrongCluster: the TrainJob does not exist here, because it belongs to another cluster.
        """
        found = self._cluster.get_trainjob(self._reference.name, self._reference.namespace)
        if found is None or found["metadata"]["uid"] != self._reference.uid:
            if self._known_job is None:  # otherwise this cluster has already reported it
                check_cluster_of_missing(self._cluster, self._reference)
            return ObjectEvent(event.object or self.policy.job, deleted=True)
        self._add_pod_handler(found)
        if not get_str(found, "metadata", "labels", labels.RUN_KEY) and not self._follows_unlabelled_job:
            self._follows_unlabelled_job = True
            self._logs.report(LogNotice("", _format_lost_label(self._reference)))
            self._watch_job(self._cluster.trainjob_informer(self._reference.namespace, selector=""))
        return ObjectEvent(found)

    def observe(self, kind: str, event: ObjectEvent, now: float) -> WaitResult | None:
        """Pass an event to the policy, and return a result if the wait is over.

        The wait is also over if a limit is reached by now.
        """
        if self.policy.clock_offset is None:
            self.policy.clock_offset = self._cluster.get_server_time() - now
        if kind == "pod" and event.error:
            is_refused = isinstance(event.error, OutOfThreads)
            self._next_pod_watch = now + (RETRY_SECONDS if is_refused else self._pod_watch_backoff.next(event.error))
            return None
        if kind == "job" and event.object is not None:
            self._pass_on_report(event.object)
        observed = self.policy.observe_job if kind == "job" else self.policy.observe_pod
        return observed(event, now) or self.policy.check_deadlines(now)

    def _pass_on_report(self, job: Mapping[str, Any]) -> None:
        """Pass on the progress in a TrainJob's status if it is new, on a thread that may block."""
        reported = read_trainer_status(job)
        if reported is not None and reported.reported_at > self._reported_at:
            self._reported_at = reported.reported_at
            self._cluster.ended_log_executor.submit(lambda: self._logs.report_progress(reported))

    def seconds_until_next_check(self, now: float) -> float | None:
        """Return the seconds until the next limit or diagnosis is due; None means never."""
        cluster = self._cluster
        moments = (
            self.policy.seconds_until_evaluation(now),
            self._diagnosis_schedule.seconds_until_due(self.policy.waits_for, now),
            None if self._next_pod_watch is None else max(0.0, self._next_pod_watch - now),
            RETRY_SECONDS if cluster.live_log_executor.is_stalled or cluster.ended_log_executor.is_stalled else None,
        )
        return min((moment for moment in moments if moment is not None), default=None)

    def is_pod_watch_due(self, now: float) -> bool:
        """Return whether to watch the pods again now, because their watch has failed."""
        return self._next_pod_watch is not None and self._next_pod_watch <= now

    def start_queued_logs(self) -> None:
        """Start threads for queued logs, if their start was refused before."""
        for executor in (self._cluster.live_log_executor, self._cluster.ended_log_executor):
            executor.start_queued()

    def is_diagnosis_due(self, now: float) -> bool:
        """Return whether to diagnose now why the TrainJob does not start.

        The diagnosis is due by its schedule, and before a limit or a grace period ends the wait.
        """
        return bool(self.policy.waits_for) and self.seconds_until_next_check(now) == 0

    def diagnose(self, now: float) -> None:
        """Diagnose why the TrainJob does not start (blocking I/O).

        If a request fails or is denied, the wait continues without its result.
        """
        self._diagnosis_schedule.record_diagnosis(now)
        refresh_diagnosis(self._cluster, self.policy, now)

    def conclude(self, result: WaitResult) -> Outcome:
        """Return the outcome, and end the TrainJob if the result requires it (blocking I/O).

        All evidence is collected before the TrainJob is deleted, and the outcome is built from it. If the TrainJob has
        finished before it could be ended, its own end is the outcome, because the watch may lag behind.

        Raises:
            WaitTimeout: a limit was reached, and `limits.on_timeout` was applied.
        """
        cluster, reference, limits, job = self._cluster, self._reference, self._limits, self.policy.job
        if result.timeout:
            return self._conclude_own_end(end_at_limit(cluster, reference, limits, result))
        pods = list_final_pods(cluster, job, self.policy.pods, self.policy.deleted_pods)
        verdict = check_end(result.verdict, job, pods.existing)
        is_false_end = verdict != result.verdict
        action = choose_action(job, result, limits, is_false_end=is_false_end)
        only_ended = action is not None
        collect = partial(collect_evidence, cluster, job, verdict, pods, self._logs, only_ended=only_ended)
        if action is not None:
            ended = end_as_failed(cluster, reference, job, verdict, action, collect, is_false_end=is_false_end)
            if isinstance(ended, Cancellation):
                return self._conclude_own_end(ended)
            self._listener.on_phase(verdict)
            return build_outcome(job, verdict, ended)
        if verdict.phase is Phase.COMPLETE:
            mark_exported(cluster, job)
        evidence = collect()
        warnings = check_after_end(cluster, reference, limits, job, verdict, pods.existing, evidence.jobset)
        for warning in (*evidence.warnings, *warnings):
            self._listener.on_warning(warning)
        return build_outcome(job, verdict, evidence, warnings=warnings)

    def _conclude_own_end(self, end: Cancellation) -> Outcome:
        """Return the outcome of a TrainJob that has finished by itself, as it was read."""
        self.policy.job = end.job or self.policy.job
        self._listener.on_phase(end.verdict)
        return self.conclude(WaitResult(end.verdict))

    def close(self) -> None:
        """Remove the event handlers and stop the log followers; the TrainJob continues to run."""
        self._closed = True
        for event_handler in self._event_handlers:
            event_handler.close()
        with _LOCK:
            logs = self._job_logs
        if logs is not None:
            logs.stop()

    @property
    def _logs(self) -> JobLogs:
        """The logs, which are followed from the first pod on."""
        with _LOCK:
            if self._job_logs is None:
                self._job_logs = JobLogs(self._cluster, self._reference.namespace, self._listener, self._written_times)
                if self._closed:
                    self._job_logs.stop()
            return self._job_logs

    def _on_missing(self, event: ObjectEvent = _NO_EVENT) -> None:
        self._deliver(("missing", event))

    def _on_job(self, event: ObjectEvent) -> None:
        if event.object is not None and event.object["metadata"]["uid"] != self._reference.uid:
            if self._known_job is None:
                self._on_missing()  # another TrainJob has its name
            return
        if event.deleted:
            self._on_missing(event)
            return
        if event.object is not None:
            self._add_pod_handler(event.object)
        self._deliver(("job", event))

    def _add_pod_handler(self, job: Mapping[str, Any]) -> None:
        """Add the handler of pod events, once the TrainJob's creation time is known.

        Older pods belong to an earlier TrainJob of the same name.
        """
        with _LOCK:
            is_known, self._known_job = self._known_job is not None, job
        if not is_known:
            self.watch_pods()

    def watch_pods(self) -> None:
        """Add the handler of pod events, at first or after the watch of the pods has failed."""
        self._next_pod_watch = None
        informer = self._cluster.pod_informer(self._reference.namespace)
        self._keep_event_handler(informer.add_event_handler(self._reference.name, self._on_pod))

    def _keep_event_handler(self, event_handler: EventHandler) -> None:
        if not event_handler.removed:
            self._event_handlers.append(event_handler)
        if self._closed:  # by another thread, since the handler was added
            event_handler.close()

    def _on_pod(self, event: ObjectEvent) -> None:
        if event.error:
            if not isinstance(event.error, OutOfThreads):
                self._report_pod_watch(event.error)
            self._deliver(("pod", event))
        elif event.object is not None and self._known_job is not None and belongs_to_job(event.object, self._known_job):
            self._logs.observe(event)
            self._deliver(("pod", event))

    def _report_pod_watch(self, error: ClusterError) -> None:
        """Emit one notice for all failures of the watch, on a thread that may block."""
        if not (self._closed or self._is_pod_watch_reported):
            self._is_pod_watch_reported = True
            notice = pods_are_not_watched(self._reference.name, self._reference.namespace, error.message)
            self._cluster.ended_log_executor.submit(lambda: self._logs.report(notice))


def _format_lost_label(reference: JobReference) -> str:
    return (
        f"TrainJob {reference} has lost its label {labels.RUN_KEY}: a user, a tool or an admission policy removed it. "
        "The wait continues, but sweeps do not find the TrainJob. The next try of this step writes the label again"
    )


def _placeholder_job(reference: JobReference) -> dict[str, Any]:
    """Return a TrainJob with only the metadata that the reference has."""
    return {"metadata": {"name": reference.name, "namespace": reference.namespace, "uid": reference.uid}}
