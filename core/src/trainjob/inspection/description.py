"""Description of one TrainJob, from everything that this connection may read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from trainjob.client import Cluster, last_lines, warning_events, warnings_about
from trainjob.client.diagnostics import last_lines_of
from trainjob.errors import ClusterError
from trainjob.inspection.facts import event_facts, pod_facts, spec_facts, step_facts, time_line
from trainjob.inspection.summary import Summary, summarize
from trainjob.status import Outcome, Phase, Verdict, conclude, failures, handed_back, judge
from trainjob.status.findings import Finding, of_events, of_pod, of_workload, weighed
from trainjob.status.pods import container_statuses, rank_of
from trainjob.status.policies import explained, needs_jobset
from trainjob.status.reading import text
from trainjob.status.trouble import RULES, Category

T = TypeVar("T")
Json = dict[str, Any]
_TOLD = 3  # a description has at most this many reasons why the TrainJob does not start


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
        story: its timeline.
        outcome: its outcome; None while it has not finished.
        result: value that its program returned through its log; None if there is none, or the log was deleted.
        hints: reasons why it does not start or has failed, with the remedy.
        unread: what could not be read, with the error.
    """

    job: Mapping[str, Any]
    summary: Summary
    spec: Json
    steps: list[Json]
    pods: list[Json]
    events: list[Json]
    story: list[dict[str, str]]
    outcome: Outcome | None
    result: Json | None
    hints: list[str]
    unread: list[str]

    def to_dict(self) -> Json:
        """Return the description as JSON values, with the summary's fields at the top level."""
        return {
            **self.summary.to_dict(),
            "spec": self.spec,
            "steps": self.steps,
            "pods": self.pods,
            "events": self.events,
            "story": self.story,
            "outcome": self.outcome.to_dict() if self.outcome else None,
            "result": self.result,
            "hints": self.hints,
            "unread": self.unread,
        }


def describe(cluster: Cluster, job: Mapping[str, Any]) -> Description:
    """Return the description of a TrainJob; nothing is changed.

    Objects that cannot be read are left out and listed in `unread`.

    Args:
        cluster: the cluster of the TrainJob.
        job: the TrainJob as just read.
    """
    return _Look(cluster, job).describe()


class _Look:
    """Requests for the description of one TrainJob."""

    def __init__(self, cluster: Cluster, job: Mapping[str, Any]) -> None:
        self._cluster, self._job = cluster, job
        self._name, self._namespace = text(job, "metadata", "name"), text(job, "metadata", "namespace")
        self._created = text(job, "metadata", "creationTimestamp")
        self._unread: list[str] = []

    def describe(self) -> Description:
        pods = [pod for pod in self._read("pods", self._pods) or [] if self._is_ours(pod)]
        events = self._read("events", lambda: self._events(pods)) or []
        verdict = judge(self._job, pods)
        outcome = self._outcome(verdict, pods) if verdict.phase.finished else None
        return Description(
            job=self._job,
            summary=summarize(self._job, pods),
            spec=spec_facts(self._job),
            steps=step_facts(self._job),
            pods=pod_facts(pods),
            events=event_facts(events),
            story=time_line(self._job, pods),
            outcome=outcome,
            result=self._result(pods) if verdict.phase is Phase.COMPLETE else None,
            hints=_advice(outcome, pods) if outcome else self._hints(verdict, pods, events),
            unread=self._unread,
        )

    def _read(self, what: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except ClusterError as error:
            self._unread.append(f"{what}: {error.message}")
            return None

    def _pods(self) -> list[Json]:
        return self._cluster.list_pods(self._name, self._namespace)

    def _is_ours(self, item: Mapping[str, Any]) -> bool:
        """Return whether a pod or event is not older than the TrainJob.

        Pods of an earlier TrainJob of this name may still be terminating, and its events exist for another hour.
        """
        return text(item, "metadata", "creationTimestamp") >= self._created

    def _events(self, pods: Sequence[Mapping[str, Any]]) -> list[Json]:
        own = self._cluster.list_events(self._namespace, f"involvedObject.name={self._name}")
        around = warning_events(self._cluster, self._namespace, self._name, pods)
        return [event for event in [*own, *around] if self._is_ours(event)]

    def _outcome(self, verdict: Verdict, pods: Sequence[Mapping[str, Any]]) -> Outcome:
        if verdict.phase is not Phase.FAILED:
            return conclude(self._job, verdict)
        failed = failures(pods)
        first = next((one for one in failed if not verdict.step or one.step == verdict.step), None)
        warnings = warnings_about(self._cluster, self._namespace, self._name, pods, since=self._created)
        jobset = None
        if needs_jobset(verdict):
            with contextlib.suppress(ClusterError):
                jobset = self._cluster.get_jobset(self._name, self._namespace)
        tail = last_lines(self._cluster, self._namespace, first) if first and first.exit_code is not None else []
        return conclude(self._job, explained(verdict, warnings, jobset), failed, events=warnings, log_tail=tail)

    def _result(self, pods: Sequence[Mapping[str, Any]]) -> Json | None:
        """Return the value that the first rank returned last in its log.

        Exports and fetches return values, too.
        """
        for pod in pods:
            if rank_of(pod) == 0 and text(pod, "status", "phase") == "Succeeded":
                for status in container_statuses(pod):
                    lines = last_lines_of(self._cluster, self._namespace, pod, text(status, "name"))
                    if found := next((one for one in map(handed_back, reversed(lines)) if one), None):
                        return found
        return None

    def _hints(
        self, verdict: Verdict, pods: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]
    ) -> list[str]:
        if verdict.phase is Phase.SUSPENDED:
            return [f"it waits to be resumed: trainjob resume {self._name} -n {self._namespace}"]
        found: list[Finding] = []
        if verdict.phase is Phase.QUEUED:
            uid = text(self._job, "metadata", "uid")
            found = of_workload(
                self._read("workload", lambda: self._cluster.diagnostics.workload(uid, self._namespace))
            )
        elif verdict.phase is not Phase.RUNNING:
            warnings = [event for event in events if text(event, "type") == "Warning"]
            found = [*(one for pod in pods for one in of_pod(pod)), *of_events(warnings, self._job, pods)]
        return [f"{one}: {one.rule.advice}".removesuffix(": ") for one in weighed(found)[:_TOLD]]


def _advice(outcome: Outcome, pods: Sequence[Mapping[str, Any]]) -> list[str]:
    if outcome.category is Category.UNKNOWN:  # the Job controller deletes the pods of a failed Job
        return [] if pods else ["its pods are gone, and their logs with them: who waited for it has told their end"]
    if outcome.category in (Category.SUCCEEDED, Category.DELETED):
        return []
    return [RULES[outcome.category].advice]
