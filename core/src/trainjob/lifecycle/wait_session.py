"""State of one wait: event handlers, log followers, decisions and the outcome."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from trainjob.client import (
    Cluster,
    EventHandler,
    LogFollower,
    LogLine,
    LogNotice,
    LogPositions,
    ObjectEvent,
    SharedInformer,
    list_warning_lines,
    read_failure_log_tail,
)
from trainjob.client.backoff import pod_watch_backoff
from trainjob.client.log_notices import pods_are_not_watched, pods_are_unknown
from trainjob.errors import ClusterError, OutOfThreads, WaitTimeout
from trainjob.frameworks.log_parser import JobLogParser
from trainjob.lifecycle.cancellation import Cancellation, cancel, mark_failed
from trainjob.lifecycle.cluster_check import check_cluster_of_missing
from trainjob.lifecycle.diagnosis import DiagnosisSchedule, refresh_diagnosis
from trainjob.lifecycle.end_checks import EndCheck, describe_restarts, needs_jobset_at_end
from trainjob.lifecycle.identity import JobReference
from trainjob.lifecycle.wait_policy import KillAction, Limits, WaitPolicy, WaitResult
from trainjob.manifest import labels
from trainjob.status import (
    ContainerFailure,
    Outcome,
    Phase,
    Progress,
    Usage,
    Verdict,
    build_outcome,
    compute_usage,
    count_restarts,
    find_failures,
    get_first_failure,
    get_first_start,
    read_trainer_status,
)
from trainjob.status.failed_mark import awaits_deletion
from trainjob.status.failure_policies import needs_jobset, with_policy_rule
from trainjob.status.failure_rules import NO_RESERVATION
from trainjob.status.nested_fields import get_str, true_conditions
from trainjob.status.verdict import check_end, had_pods
from trainjob.threads import RETRY_SECONDS, BoundedExecutor

_LOGS_LOCK = threading.Lock()  # held while a session creates its follower, which takes some microseconds
_NO_EVENT = ObjectEvent()
_LOG_SECONDS = 10.0  # how long to continue to read the logs after the end of the TrainJob


@dataclass
class Listener:
    """Callbacks of a wait.

    Each callback may be called from other threads, but never by two threads at once.

    Attributes:
        on_phase: called when the phase has changed, or the reason why the TrainJob does not start.
        on_log: called with every log line of any container. Reading the log waits for the callback. Use a
            [trainjob.client.LogWriter][] if writing the lines may be slow.
        on_progress: called with the progress of the training when a log line reports it.
        on_earlier_progress: called instead with the progress in a line that an earlier process has written.
        on_warning: called with each of the outcome's `warnings`, before the wait returns.
    """

    on_phase: Callable[[Verdict], None] = field(default=lambda _: None)
    on_log: Callable[[LogLine], None] = field(default=lambda _: None)
    on_progress: Callable[[Progress], None] = field(default=lambda _: None)
    on_earlier_progress: Callable[[Progress], None] = field(default=lambda _: None, kw_only=True)
    on_warning: Callable[[str], None] = field(default=lambda _: None)


class WaitSession:
    """State of the wait for one TrainJob, shared by the two drivers of the wait."""

    def __init__(
        self,
        cluster: Cluster,
        reference: JobReference,
        limits: Limits,
        listener: Listener,
        now: float,
        positions: LogPositions | None = None,
    ) -> None:
        """Create a session that watches nothing yet; [open][] adds the event handlers."""
        self._cluster, self._reference, self._limits, self._listener = cluster, reference, limits, listener
        self._positions = positions
        self._log_follower: LogFollower | None = None
        self._last_progress: Progress | None = None
        self.policy = WaitPolicy(_placeholder_job(reference), limits, listener.on_phase, now, job_was_read=False)
        self._event_handlers: list[EventHandler] = []
        self._created_at, self._closed, self._follows_unlabelled_job = "", False, False
        self._next_pod_watch: float | None = None  # time at which a failed watch of the pods begins again
        self._pod_watch_backoff, self._is_pod_watch_reported = pod_watch_backoff(), False
        self._diagnosis_schedule = DiagnosisSchedule()
        self._deleted_at: dict[str, datetime] = {}  # when the deletion of each pod was seen, by uid

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
        found = self._get_job()
        if found is None:
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
        observed = self.policy.observe_job if kind == "job" else self.policy.observe_pod
        result = observed(event, now)
        if kind == "pod" and event.deleted and event.object is not None:
            self._deleted_at.setdefault(event.object["metadata"]["uid"], _utc_now())
            for uid in self._deleted_at.keys() - self.policy.deleted_pods.keys():
                del self._deleted_at[uid]  # the policy keeps the last state of the newest pods only
        return result or self.policy.check_deadlines(now)

    def seconds_until_next_check(self, now: float) -> float | None:
        """Return the seconds until the next limit or diagnosis is due; None means never."""
        moments = (
            self.policy.seconds_until_evaluation(now),
            self._diagnosis_schedule.seconds_until_due(self.policy.waits_for, now),
            None if self._next_pod_watch is None else max(0.0, self._next_pod_watch - now),
            RETRY_SECONDS if self._are_logs_stalled() else None,
        )
        return min((moment for moment in moments if moment is not None), default=None)

    def is_pod_watch_due(self, now: float) -> bool:
        """Return whether to watch the pods again now, because their watch has failed."""
        return self._next_pod_watch is not None and self._next_pod_watch <= now

    def start_queued_logs(self) -> None:
        """Start threads for queued logs, if their start was refused before."""
        for executor in self._log_executors:
            executor.start_queued()

    def _are_logs_stalled(self) -> bool:
        return any(executor.is_stalled for executor in self._log_executors)

    @property
    def _log_executors(self) -> tuple[BoundedExecutor, BoundedExecutor]:
        return self._cluster.live_log_executor, self._cluster.ended_log_executor

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

        The outcome contains the evidence: failures, events and the last log lines. If the TrainJob has finished before
        it could be ended, its own end is the outcome, because the watch may lag behind.

        Raises:
            WaitTimeout: a limit was reached, and `limits.on_timeout` was applied.
        """
        if result.timeout:
            return self._conclude_at_limit(result)
        # The watch of the pods may lag behind that of the TrainJobs, or not have started, so list the pods again.
        pods, unknown_because = self._list_pods()
        verdict = check_end(result.verdict, self.policy.job, pods)
        is_false_end = verdict != result.verdict
        action = self._get_action_at_end(result, is_false_end=is_false_end)
        if (
            action is KillAction.DELETE
            and not is_false_end
            and (end := self._mark_failed(verdict, action)).had_finished
        ):
            return self._conclude_own_end(end)
        usage = self._compute_usage(pods, are_listed=not unknown_because)
        jobset, evidence = None, {} if verdict.phase is Phase.COMPLETE else self._collect_evidence(verdict, pods)
        if verdict.phase is Phase.COMPLETE:
            _mark_exported(self._cluster, self.policy.job)
        else:
            jobset = self._get_jobset(verdict)
            verdict = with_policy_rule(verdict, evidence["events"], jobset)
        # The logs are deleted with the pods. A container that runs until then has no end to wait for.
        self._finish_logs(pods, unknown_because, only_ended=action is not None)
        if evidence and not evidence["log_tail"]:
            evidence["log_tail"] = self._received_log_tail(verdict, evidence["failures"])
        if action in (KillAction.SUSPEND, KillAction.KEEP):
            end = self._mark_failed(verdict, action, ignore_end=is_false_end)
            if end.had_finished:
                return self._conclude_own_end(end)
        outcome = self._build_outcome(verdict, pods, self._check_end(verdict, pods, jobset), usage, evidence)
        if action is KillAction.DELETE:
            end = cancel(self._cluster, self._reference, known=self.policy.job, ignore_end=is_false_end)
            if end.had_finished and end.verdict.phase is not Phase.DELETED:
                return self._conclude_own_end(end)
        if action is not None:
            self._listener.on_phase(verdict)
        return outcome

    def _build_outcome(
        self,
        verdict: Verdict,
        listed_pods: list[dict[str, Any]],
        warnings: list[str],
        usage: Usage,
        evidence: Mapping[str, Any],
    ) -> Outcome:
        pods = self._all_pods(listed_pods)
        return build_outcome(
            self.policy.job,
            verdict,
            progress=self._last_progress or read_trainer_status(self.policy.job),  # a training may log no progress
            warnings=warnings,
            usage=usage,
            started=get_first_start(pods),
            restarts=count_restarts(pods),
            **evidence,
        )

    def _get_action_at_end(self, result: WaitResult, *, is_false_end: bool) -> KillAction | None:
        """Return the action on a TrainJob that may still run after the wait; None if it has ended."""
        action = self._limits.on_failure
        if result.end_job and result.verdict.reason == NO_RESERVATION:
            return KillAction.DELETE  # the queue must not admit it later, beside the next attempt
        if awaits_deletion(self.policy.job):  # an earlier waiter died before it had reported this failure
            return KillAction.DELETE
        return action if result.end_job or (is_false_end and action is not KillAction.KEEP) else None

    def _finish_logs(self, pods: Iterable[dict[str, Any]], unknown_because: str, *, only_ended: bool) -> None:
        for pod in pods:
            self._logs.observe(ObjectEvent(pod))
        deadline = time.monotonic() + _LOG_SECONDS
        while self._are_logs_stalled() and time.monotonic() < deadline:
            time.sleep(RETRY_SECONDS)
            self.start_queued_logs()
        if unknown_because:
            self._logs.report(pods_are_unknown(self._reference.name, self._reference.namespace, unknown_because))
        self._logs.finish(_LOG_SECONDS, only_ended=only_ended)

    def _conclude_at_limit(self, result: WaitResult) -> Outcome:
        """Apply `limits.on_timeout`, or return the outcome of a TrainJob that has finished before.

        Raises:
            WaitTimeout: the TrainJob had not finished.
        """
        end = cancel(self._cluster, self._reference, self._limits.on_timeout.value)
        if end.had_finished:
            return self._conclude_own_end(end)
        self._record_reached_limit()
        message = f"TrainJob {self._reference} is {result.verdict}: {result.timeout}; {end.text}"
        raise WaitTimeout(message, hint=result.advice)

    def _mark_failed(self, verdict: Verdict, action: KillAction, *, ignore_end: bool = False) -> Cancellation:
        mark = mark_failed(self._cluster, self._reference, verdict, action.value, ignore_end=ignore_end)
        self.policy.job = mark.job or self.policy.job
        return mark

    def _conclude_own_end(self, end: Cancellation) -> Outcome:
        """Return the outcome of a TrainJob that has finished by itself, as [cancel][] has read it."""
        self.policy.job = end.job or self.policy.job
        self._listener.on_phase(end.verdict)
        return self.conclude(WaitResult(end.verdict))

    def _record_reached_limit(self) -> None:
        """Record the time of a timeout that does not delete the TrainJob.

        The next try then waits as long as this one.
        """
        if self._limits.on_timeout is KillAction.DELETE:
            return
        now, reference = datetime.fromtimestamp(self._cluster.get_server_time(), timezone.utc), self._reference
        mark = {labels.LIMIT_REACHED: now.isoformat()}
        with contextlib.suppress(ClusterError):
            self._cluster.patch_trainjob(reference.name, reference.namespace, reference.uid, annotations=mark)

    def close(self) -> None:
        """Remove the event handlers and stop the log followers; the TrainJob continues to run."""
        self._closed = True
        for event_handler in self._event_handlers:
            event_handler.close()
        with _LOGS_LOCK:
            follower = self._log_follower
        if follower is not None:
            follower.stop()

    @property
    def _logs(self) -> LogFollower:
        """The follower of the logs, which is created at the first pod."""
        with _LOGS_LOCK:
            if self._log_follower is None:
                self._log_parser = JobLogParser()
                self._log_follower = LogFollower(
                    self._cluster, self._reference.namespace, self._on_log, self._positions
                )
                if self._closed:
                    self._log_follower.stop()
            return self._log_follower

    def _on_missing(self, event: ObjectEvent = _NO_EVENT) -> None:
        self._deliver(("missing", event))

    def _on_job(self, event: ObjectEvent) -> None:
        if event.object is not None and event.object["metadata"]["uid"] != self._reference.uid:
            if not self._created_at:
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
        with _LOGS_LOCK:
            is_known, self._created_at = bool(self._created_at), str(job["metadata"]["creationTimestamp"])
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
        elif self._belongs_to_job(event):
            self._logs.observe(event)
            self._deliver(("pod", event))

    def _report_pod_watch(self, error: ClusterError) -> None:
        """Emit one notice for all failures of the watch, on a thread that may block."""
        if not (self._closed or self._is_pod_watch_reported):
            self._is_pod_watch_reported = True
            notice = pods_are_not_watched(self._reference.name, self._reference.namespace, error.message)
            self._cluster.ended_log_executor.submit(lambda: self._logs.report(notice))

    def _collect_evidence(self, verdict: Verdict, listed_pods: list[dict[str, Any]]) -> dict[str, Any]:
        name, namespace = self._reference.name, self._reference.namespace
        pods = self._all_pods(listed_pods)
        failed = find_failures(pods)
        return {
            "failures": failed,
            "events": list_warning_lines(self._cluster, namespace, name, pods, since=self._created_at),
            "log_tail": self._read_log_tail(get_first_failure(verdict, failed)),
        }

    def _all_pods(self, listed_pods: Iterable[dict[str, Any]]) -> list[Mapping[str, Any]]:
        """Return the pods in their last known state; deleted pods exist only in memory."""
        newest = {pod["metadata"]["uid"]: pod for pod in listed_pods}
        return list({**self.policy.deleted_pods, **self.policy.pods, **newest}.values())

    def _compute_usage(self, listed_pods: list[dict[str, Any]], *, are_listed: bool) -> Usage:
        now, listed = _utc_now(), {pod["metadata"]["uid"] for pod in listed_pods}
        if are_listed:
            self._deleted_at = {**dict.fromkeys(self.policy.pods.keys() - listed, now), **self._deleted_at}
        return compute_usage(self.policy.job, self._all_pods(listed_pods), now, self._deleted_at)

    def _check_end(
        self, verdict: Verdict, listed_pods: list[dict[str, Any]], jobset: dict[str, Any] | None
    ) -> list[str]:
        """Return warnings about the end of the TrainJob, and pass them to the listener."""
        if not true_conditions(self.policy.job).keys() & {Phase.COMPLETE.value, Phase.FAILED.value}:
            return []  # deleted, or ended by this project
        warnings = []
        if verdict.phase is Phase.COMPLETE:
            pods = {**self.policy.pods, **{pod["metadata"]["uid"]: pod for pod in listed_pods}}
            warnings += describe_restarts(pods.values(), self._limits.max_restarts)
        check = EndCheck(self._cluster, self._reference, self._limits, self._belongs_to_job)
        warnings += check.run(verdict, listed_pods, jobset)
        for warning in warnings:
            self._listener.on_warning(warning)
        return warnings

    def _get_jobset(self, verdict: Verdict) -> dict[str, Any] | None:
        with contextlib.suppress(ClusterError):
            if needs_jobset(verdict) or needs_jobset_at_end(self.policy.job, verdict):
                return self._cluster.get_jobset(self._reference.name, self._reference.namespace)
        return None

    def _get_job(self) -> dict[str, Any] | None:
        found = self._cluster.get_trainjob(self._reference.name, self._reference.namespace)
        if found is not None and found["metadata"]["uid"] == self._reference.uid:
            return found
        if not self._created_at:  # otherwise this cluster has already reported it
            check_cluster_of_missing(self._cluster, self._reference)
        return None

    def _list_pods(self) -> tuple[list[dict[str, Any]], str]:
        """Return the TrainJob's pods, and why they are unknown; empty if they are known."""
        try:
            listed = self._cluster.list_pods(self._reference.name, self._reference.namespace)
        except ClusterError as error:
            return [], f"its pods can't be listed: {error.message}"
        pods = [pod for pod in listed if self._belongs_to_job(ObjectEvent(pod))]
        known = pods or self.policy.pods or self.policy.deleted_pods
        return pods, "" if known or not had_pods(self.policy.job) else "its pods do not exist in this cluster any more"

    def _read_log_tail(self, failure: ContainerFailure | None) -> tuple[str, ...]:
        if failure is None:
            return ()
        if failure.exit_code is None:  # the container never ran
            return tuple(failure.message.splitlines())
        lines = read_failure_log_tail(self._cluster, self._reference.namespace, failure)
        return tuple(lines or failure.message.splitlines())  # a command that could not start has no log

    def _received_log_tail(self, verdict: Verdict, failed: Sequence[ContainerFailure]) -> tuple[str, ...]:
        """Return the log lines received from the first failed rank, else from another failed rank.

        They replace a log that was deleted with its pod. The Job controller deletes all pods that it has not seen fail
        yet, and the first failed pod may be among them.
        """
        first = get_first_failure(verdict, failed)
        if first is None or first.exit_code is None:
            return ()
        if lines := self._logs.tail(f"{first.step}-{first.rank}"):
            return lines
        for failure in failed:
            source = f"{failure.step}-{failure.rank}"
            if lines := self._logs.tail(source):
                return tuple(f"[{source}] {line}" for line in lines)
        return ()

    def _belongs_to_job(self, event: ObjectEvent) -> bool:
        """Return whether a pod belongs to this TrainJob, not to an earlier one of its name.

        Pods carry the uid of their JobSet, not of the TrainJob, so their creation times are compared.
        """
        if event.object is None:
            return False
        created = event.object["metadata"].get("creationTimestamp", "")
        return bool(created >= (self._created_at or self.policy.job["metadata"].get("creationTimestamp", "")))

    def _on_log(self, line: LogLine) -> None:
        if not isinstance(line, LogNotice) and (progress := self._log_parser.feed(line.text)):
            self._last_progress = progress
            (self._listener.on_earlier_progress if line.is_written else self._listener.on_progress)(progress)
        self._listener.on_log(line)


def _utc_now() -> datetime:
    """Return the time in whole seconds, the precision of Kubernetes."""
    return datetime.now(timezone.utc).replace(microsecond=0)


def _format_lost_label(reference: JobReference) -> str:
    return (
        f"TrainJob {reference} has lost its label {labels.RUN_KEY}: a user, a tool or an admission policy removed it. "
        "The wait continues, but sweeps do not find the TrainJob. The next try of this step writes the label again"
    )


def _placeholder_job(reference: JobReference) -> dict[str, Any]:
    """Return a TrainJob with only the metadata that the reference has."""
    return {"metadata": {"name": reference.name, "namespace": reference.namespace, "uid": reference.uid}}


def _mark_exported(cluster: Cluster, export_job: Mapping[str, Any]) -> None:
    """Annotate the source TrainJob of a complete export, so that its model counts as exported.

    The source is the TrainJob whose own claim the export has read. Every waiter of the export writes the annotation. If
    it is missing, [trainjob.retention.sweep][] retains the source TrainJob.
    """
    source, meta = labels.get_annotation(export_job, labels.EXPORTS), export_job["metadata"]
    if not source:
        return
    with contextlib.suppress(ClusterError):
        job = cluster.get_trainjob(source, meta["namespace"])
        # A TrainJob that was created after the export has the same name and another model.
        if job is not None and job["metadata"]["creationTimestamp"] <= meta["creationTimestamp"]:
            marks = {labels.EXPORTED: labels.get_annotation(export_job, labels.MODEL)}
            cluster.patch_trainjob(source, meta["namespace"], job["metadata"]["uid"], annotations=marks)
