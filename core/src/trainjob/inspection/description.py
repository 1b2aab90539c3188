"""Description of one TrainJob, from everything that this connection may read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any, TypeVar

from trainjob.client import Cluster, list_warning_events
from trainjob.client.diagnostics import find_log_line, read_log_tail
from trainjob.errors import ClusterError
from trainjob.inspection.facts import build_timeline, event_facts, pod_facts, spec_facts, step_facts
from trainjob.inspection.summary import Summary, summarize
from trainjob.lifecycle.evidence import collect_evidence, read_progress
from trainjob.status import (
    FinalPods,
    Outcome,
    Phase,
    Progress,
    Verdict,
    build_outcome,
    derive_verdict,
    parse_step_result,
    read_trainer_status,
)
from trainjob.status.diagnostics import (
    Finding,
    get_event_findings,
    get_pod_findings,
    get_sidecar_findings,
    get_workload_findings,
    merge_findings,
)
from trainjob.status.failure_rules import RULES, Category
from trainjob.status.nested_fields import get_str
from trainjob.status.pods import NODE, container_statuses, is_active, rank_of, step_of

T = TypeVar("T")
Json = dict[str, Any]
# As trainjob.frameworks.transformers.checkpoints prints it.
_START = re.compile("(continues|starts) from (step|epoch) [0-9]|starts from the beginning, because ")
_MAX_LOGS = 16  # nodes whose last lines are read for the progress
_MAX_REASONS = 3  # a description has at most this many reasons why the TrainJob does not start


@dataclass(frozen=True)
class Description:
    """Description of one TrainJob.

    Attributes:
        job: the object itself.
        summary: its summary, as in a list of TrainJobs.
        spec: summary of its spec; see [trainjob.inspection.facts.spec_facts][].
        steps: its replicated jobs with the counts of their Jobs.
        pods: facts about each existing pod.
        events: the newest events; repeated events are merged.
        timeline: when it was created, adopted, admitted, started and ended.
        outcome: its outcome; None while it has not finished.
        start: the line of its log that says from which checkpoint the training continues, or why it starts from the
            beginning; empty if there is none.
        progress: progress of the training, in its logs and in the TrainJob's status; None if neither has one.
        result: value that its program returned through its log; None if there is none, or the log was deleted.
        hints: reasons why it does not start or has failed, with the remedy.
        read_errors: the objects that could not be read, each with its error.
    """

    job: Mapping[str, Any]
    summary: Summary
    spec: Json
    steps: list[Json]
    pods: list[Json]
    events: list[Json]
    timeline: list[dict[str, str]]
    outcome: Outcome | None
    start: str
    progress: Progress | None
    result: Json | None
    hints: list[str]
    read_errors: list[str]

    def to_dict(self) -> Json:
        """Return the description as JSON values, with the summary's fields at the top level."""
        return {
            **self.summary.to_dict(),
            "spec": self.spec,
            "steps": self.steps,
            "pods": self.pods,
            "events": self.events,
            "timeline": self.timeline,
            "outcome": self.outcome.to_dict() if self.outcome else None,
            "start": self.start,
            "progress": self.progress.to_dict() if self.progress else None,
            "result": self.result,
            "hints": self.hints,
            "read_errors": self.read_errors,
        }


def describe(cluster: Cluster, job: Mapping[str, Any]) -> Description:
    """Return the description of a TrainJob; nothing is changed.

    Objects that cannot be read are omitted and listed in `read_errors`.

    Args:
        cluster: the cluster of the TrainJob.
        job: the TrainJob as just read.
    """
    return _DescriptionBuilder(cluster, job).build()


class _DescriptionBuilder:
    """Builder of the description of one TrainJob, which sends the requests for it."""

    def __init__(self, cluster: Cluster, job: Mapping[str, Any]) -> None:
        self._cluster, self._job = cluster, job
        self._name, self._namespace = get_str(job, "metadata", "name"), get_str(job, "metadata", "namespace")
        self._created = get_str(job, "metadata", "creationTimestamp")
        self._read_errors: list[str] = []

    def build(self) -> Description:
        pods = [pod for pod in self._try_read("pods", self._list_pods) or [] if self._belongs_to_job(pod)]
        events = self._try_read("events", lambda: self._list_events(pods)) or []
        verdict, summary = derive_verdict(self._job, pods), summarize(self._job, pods)
        outcome = self._build_outcome(verdict, pods) if verdict.phase.finished else None
        findings = [] if outcome else self._find_reasons(verdict, pods, events)
        # The pods' own status has no such reason: that of a queue is in the Workload.
        if verdict.phase is Phase.QUEUED or any(each.category is Category.SIDECAR for each in findings):
            summary = replace(summary, message="; ".join(filter(None, [summary.message, *map(str, findings)])))
        return Description(
            job=self._job,
            summary=summary,
            spec=spec_facts(self._job),
            steps=step_facts(self._job),
            pods=pod_facts(pods),
            events=event_facts(events),
            timeline=build_timeline(self._job, pods),
            outcome=outcome,
            start=self._find_start(pods),
            progress=outcome.progress if outcome else self._find_progress(pods),
            result=self._find_result(pods) if verdict.phase is Phase.COMPLETE else None,
            hints=_outcome_hints(outcome, pods) if outcome else self._build_hints(verdict, findings),
            read_errors=self._read_errors,
        )

    def _try_read(self, subject: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except ClusterError as error:
            self._read_errors.append(f"{subject}: {error.message}")
            return None

    def _list_pods(self) -> list[Json]:
        return self._cluster.list_pods(self._name, self._namespace)

    def _belongs_to_job(self, item: Mapping[str, Any]) -> bool:
        """Return whether a pod or event is not older than the TrainJob.

        Pods of an earlier TrainJob of this name may still be terminating, and its events exist for another hour.
        """
        return get_str(item, "metadata", "creationTimestamp") >= self._created

    def _list_events(self, pods: Sequence[Mapping[str, Any]]) -> list[Json]:
        own = self._cluster.list_events(self._namespace, f"involvedObject.name={self._name}")
        related = list_warning_events(self._cluster, self._namespace, self._name, pods)
        return [event for event in [*own, *related] if self._belongs_to_job(event)]

    def _build_outcome(self, verdict: Verdict, pods: Sequence[Mapping[str, Any]]) -> Outcome:
        if verdict.phase is not Phase.FAILED:
            return build_outcome(self._job, verdict)
        evidence = collect_evidence(self._cluster, self._job, verdict, FinalPods(pods))
        return build_outcome(self._job, verdict, evidence)

    def _find_result(self, pods: Sequence[Mapping[str, Any]]) -> Json | None:
        """Return the last step result in the log of rank 0.

        Exports and fetches also have step results.
        """
        for pod in pods:
            if rank_of(pod) == 0 and get_str(pod, "status", "phase") == "Succeeded":
                for status in container_statuses(pod):
                    lines = read_log_tail(self._cluster, self._namespace, pod, get_str(status, "name"))
                    if result := next(filter(None, map(parse_step_result, reversed(lines))), None):
                        return result
        return None

    def _find_start(self, pods: Sequence[Mapping[str, Any]]) -> str:
        """Return the line about the start of a training from the log of rank 0."""
        for pod in pods:
            if rank_of(pod) == 0 and step_of(pod) == NODE:
                for status in container_statuses(pod):
                    name = get_str(status, "name")
                    if line := find_log_line(self._cluster, self._namespace, pod, name, _START):
                        return line
        return ""

    def _find_progress(self, pods: Sequence[Mapping[str, Any]]) -> Progress | None:
        running = [pod for pod in pods if get_str(pod, "status", "phase") == "Running" and step_of(pod) == NODE]
        found = read_progress(self._cluster, sorted(running, key=rank_of)[:_MAX_LOGS])
        reported = read_trainer_status(self._job)
        return found.with_report(reported) if found else reported

    def _find_reasons(
        self, verdict: Verdict, pods: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]
    ) -> list[Finding]:
        """Return the main reasons why the TrainJob does not start."""
        found: list[Finding] = []
        if verdict.phase is Phase.QUEUED:
            found = self._try_read("workload", lambda: find_queue_reasons(self._cluster, self._job)) or []
        elif verdict.phase is not Phase.SUSPENDED:
            found = get_sidecar_findings(filter(is_active, pods), datetime.now(timezone.utc))
        if verdict.phase not in (Phase.QUEUED, Phase.RUNNING, Phase.SUSPENDED):
            warnings = [event for event in events if get_str(event, "type") == "Warning"]
            starting = (finding for pod in pods for finding in get_pod_findings(pod))
            found += [
                *(finding for finding in starting if finding.category is not Category.SIDECAR),
                *get_event_findings(warnings, self._job, pods),
            ]
        return merge_findings(found)[:_MAX_REASONS]

    def _build_hints(self, verdict: Verdict, findings: Sequence[Finding]) -> list[str]:
        if verdict.phase is Phase.SUSPENDED:
            return [f"it is suspended; to resume it, run: trainjob resume {self._name} -n {self._namespace}"]
        return [f"{each}: {each.rule.advice}".removesuffix(": ") for each in findings]


def find_queue_reasons(cluster: Cluster, job: Mapping[str, Any]) -> list[Finding]:
    """Return why a TrainJob in a Kueue queue is suspended, from its Workload (blocking I/O).

    Raises:
        ClusterError: the Workload could not be read.
    """
    workload = cluster.diagnostics.get_workload(get_str(job, "metadata", "uid"), get_str(job, "metadata", "namespace"))
    delay = timedelta(seconds=RULES[Category.NOT_RESUMED].delay)  # the TrainJob may have been resumed since its read
    admitted_before = (datetime.now(timezone.utc) - delay).strftime("%Y-%m-%dT%H:%M:%SZ")
    return get_workload_findings(workload, admitted_before=admitted_before)


def _outcome_hints(outcome: Outcome, pods: Sequence[Mapping[str, Any]]) -> list[str]:
    if outcome.category is Category.UNKNOWN:
        # The Job controller deletes the pods of a failed Job.
        return (
            []
            if pods
            else ["its pods and their logs were deleted; the log of the step that waited for it has their last lines"]
        )
    if outcome.category in (Category.SUCCEEDED, Category.DELETED):
        return []
    return [RULES[outcome.category].advice]
