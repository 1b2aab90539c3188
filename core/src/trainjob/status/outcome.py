"""Outcome of a TrainJob with the evidence: what failed, where, why, and what to do."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from typing import Any

from trainjob.control_characters import escape_control_characters
from trainjob.errors import HUNG, IncompatibleVersion
from trainjob.status.diagnostics import get_sidecar_findings, merge_findings
from trainjob.status.evidence import Evidence
from trainjob.status.failure_policies import with_policy_rule
from trainjob.status.failure_rules import RULES, Category, find_category
from trainjob.status.log_reasons import ProcessFailure, categorize_log, find_failed_process, find_reason
from trainjob.status.nested_fields import get_list, get_mapping, get_str, parse_time
from trainjob.status.pods import ContainerFailure, count_restarts, find_machines
from trainjob.status.progress import Progress
from trainjob.status.trainer_status import read_trainer_status
from trainjob.status.usage import Usage, get_first_start
from trainjob.status.verdict import INITIALIZERS, Phase, Verdict
from trainjob.status.watchdog import WatchdogReport, describe_hang, find_hanging_nodes, is_hang

RESTART_LIMIT_EXCEEDED = "RestartLimitExceeded"
"""Reason of this project for a job that it ended after more container failures than allowed."""
NO_EVIDENCE = Evidence()
_TUPLES = ("events", "log_tail", "warnings", "hung_on")  # fields that are lists in JSON
# Categories of an end from outside the container, whatever it has printed before.
_ENDED_FROM_OUTSIDE = frozenset({Category.SUCCEEDED, Category.DELETED, Category.DEADLINE, Category.INFRASTRUCTURE})


@dataclass(frozen=True)
class Outcome:
    """Result of one finished TrainJob, with the evidence.

    Attributes:
        job: name of the TrainJob.
        namespace: namespace of the TrainJob.
        uid: uid of the TrainJob.
        phase: Complete, Failed or Deleted.
        category: `Succeeded`, or the kind of the failure; `trainjob.status.failure_rules.RULES` has the rule of each.
        reason: reason of the condition, or of this project if there is none.
        message: message of the condition, or of this project.
        step: replicated job that failed first, such as `node`.
        rank: rank of the container that failed first.
        exit_code: exit code of that container, 1-255.
        failed_process: the process that failed first in that container, if torchrun names one.
        hang: which rank made no step at the end and where it was, as the training's watchdogs found it.
        hung_on: names of the cluster's nodes on which such ranks ran.
        watchdog_action: what these watchdogs do about a hang, see `trainjob.Watchdog`; empty without a hang.
        events: recent Warning events about the job and its pods, one line each.
        log_tail: last lines of the container that failed first. If its log was deleted with its pod before it could be
            read, these are lines of another failed container, each with its source: `[node-1] Connection reset by
            peer`.
        created: RFC 3339 time of the TrainJob's creation.
        started: RFC 3339 time at which its first pod was bound to a node; empty if no such pod is known.
        finished: RFC 3339 time of the end, as the cluster saw it; empty if the cluster does not report it.
        progress: last progress in the training's log.
        restarts: number of times that the kubelet has restarted its containers in place.
        warnings: what watchdogs have noticed; restarts that no wait saw in time, and pods that ran after the end, with
            what was done about them.
        labels: labels of the TrainJob, by which `trainjob cost` groups.
        usage: pod seconds and GPU seconds of the TrainJob's pods; None if nobody counted them. Other attempts of the
            same step are other TrainJobs and not included.
    """

    job: str
    namespace: str
    uid: str
    phase: Phase
    category: Category
    reason: str = ""
    message: str = ""
    step: str = ""
    rank: int | None = None
    exit_code: int | None = None
    events: tuple[str, ...] = ()
    log_tail: tuple[str, ...] = ()
    created: str = ""
    finished: str = ""
    progress: Progress | None = field(default=None)
    warnings: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    usage: Usage | None = None
    started: str = ""
    restarts: int = 0
    failed_process: ProcessFailure | None = None
    hang: str = ""
    watchdog_action: str = ""
    hung_on: tuple[str, ...] = ()

    @property
    def gpu_seconds(self) -> float | None:
        """GPU seconds of the TrainJob's pods; None if nobody counted them."""
        return self.usage.gpu_seconds if self.usage else None

    @property
    def pod_seconds(self) -> float | None:
        """Seconds of all pods of the TrainJob; None if nobody counted them."""
        return self.usage.pod_seconds if self.usage else None

    @property
    def succeeded(self) -> bool:
        """Whether the TrainJob is complete."""
        return self.phase is Phase.COMPLETE

    @property
    def retryable(self) -> bool:
        """Whether the same step may succeed without any change by a person."""
        return RULES[self.category].retryable

    @property
    def is_interruption(self) -> bool:
        """Whether another attempt follows as after an interruption by the infrastructure."""
        is_restarted = self.category is Category.HUNG and self.watchdog_action == "restart"
        return is_restarted or self.category is Category.INFRASTRUCTURE

    @property
    def seconds(self) -> float | None:
        """Seconds from creation to the end, by the cluster's clock.

        Time in a queue is included. The value is None if one of the times is missing or has no time zone.
        """
        return _seconds_between(self.created, self.finished)

    @property
    def queued_seconds(self) -> float | None:
        """Seconds from creation until the first pod was bound to a node.

        It is the time in a queue, and the time until a node had enough free resources. The value is None if one of the
        times is missing.
        """
        return _seconds_between(self.created, self.started)

    @property
    def run_seconds(self) -> float | None:
        """Seconds from the binding of the first pod to a node until the end.

        The pulls of images are included, and the time without pods after a preemption. The value is None if one of the
        times is missing.
        """
        return _seconds_between(self.started, self.finished)

    @property
    def printed_reason(self) -> str:
        """Reason that the failed step printed; empty if its last log lines contain none."""
        if self.category in _ENDED_FROM_OUTSIDE:
            return ""
        if self.category is Category.HUNG and self.hang:
            return f"{HUNG}: {self.hang}"
        if self.failed_process and self.failed_process.reason:  # the other processes then fail because of this one
            return self.failed_process.reason
        return "" if self.category is Category.OUT_OF_MEMORY else find_reason(self.log_tail)

    @property
    def first_failure(self) -> tuple[int | None, int | None]:
        """Rank and exit code of the process that failed first.

        Those of its container if no process is known.
        """
        if self.failed_process:
            return self.failed_process.rank, self.failed_process.exit_code
        return self.rank, self.exit_code

    @property
    def cause(self) -> str:
        """Reason of the failure without its kind: the one that the step printed if there is one."""
        return self.printed_reason or self.message or self.reason

    def explain(self) -> str:
        """Return a description of the end for users: what, where, why, the last log lines.

        The text has several lines, and the first one names the reason. If the step has printed its own reason, the
        second line says how the cluster or this project reports the failure. Control characters in it, for example of
        the log, are shown as text.
        """
        where = f"TrainJob {self.namespace}/{self.job}"
        warnings = [f"  warning: {warning}" for warning in self.warnings]
        if self.succeeded:
            return "\n".join([f"{where} is complete", *warnings])
        failed, (rank, exit_code) = f"{where} {self.phase.value.lower()}", self.first_failure
        if self.step:
            failed += f" in step {self.step}" + ("" if rank is None else f", rank {rank}")
        if exit_code is not None:
            failed += f", exit code {exit_code}"
        reported, printed = self.reason + (f": {self.message}" if self.message else ""), self.printed_reason
        lines = [f"{failed}: {printed}", f"  {reported}"] if printed else [f"{failed}: {reported}"]
        if self.hang and self.hang not in lines[0]:
            lines.append(f"  watchdog: {self.hang}")
        if self.progress:
            lines.append(f"  last progress: {self.progress}")
        lines += [f"  event: {event}" for event in self.events]
        lines += [f"  log: {line}" for line in self.log_tail]
        return escape_control_characters("\n".join([*lines, *warnings]))

    def raise_for_failure(self) -> None:
        """Raise an error if the TrainJob did not succeed.

        Raises:
            JobFailed: the TrainJob did not succeed. The class is that of its category in
                `trainjob.status.failure_rules.RULES`.
        """
        if self.succeeded:
            return
        rule = RULES[self.category]
        failure = rule.error(self.explain(), outcome=self, hint=rule.advice)
        failure.retryable = self.retryable
        raise failure

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as JSON values, for XCom, output files and events of triggers."""
        values = asdict(self)
        values["phase"], values["category"] = self.phase.value, self.category.value
        values |= {name: list(values[name]) for name in _TUPLES}
        if self.progress:
            values["progress"] = {**self.progress.to_dict(), "unit": self.progress.unit}
        values["usage"] = self.usage.to_dict() if self.usage else None
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Outcome:
        """Create an outcome from the result of [to_dict][] of this or another version.

        Unknown keys are ignored, and missing ones get their defaults. A category of a newer version becomes `Unknown`;
        the reason and the message say more.

        Raises:
            IncompatibleVersion: a value is missing that has no default, or cannot be read, such as a new phase.
        """
        try:
            return cls._from_known(values)
        except (KeyError, TypeError, ValueError) as error:
            raise IncompatibleVersion.of_values(cls.__name__, error) from None

    @classmethod
    def _from_known(cls, values: Mapping[str, Any]) -> Outcome:
        known = {f.name: values[f.name] for f in fields(cls) if f.name in values}
        known["phase"], known["category"] = Phase(known["phase"]), _read_category(known.get("category"))
        known |= {name: tuple(known.get(name, ())) for name in _TUPLES}
        if known.get("progress"):
            known["progress"] = Progress.from_dict(known["progress"])
        known["labels"] = dict(known.get("labels") or {})
        if known.get("usage"):
            known["usage"] = Usage.from_dict(known["usage"])
        if known.get("failed_process"):
            known["failed_process"] = ProcessFailure(**known["failed_process"])
        return cls(**known)


def _read_category(value: Any) -> Category:
    return Category(value) if value in {one.value for one in Category} else Category.UNKNOWN


def build_outcome(
    job: Mapping[str, Any], verdict: Verdict, evidence: Evidence = NO_EVIDENCE, *, warnings: Sequence[str] = ()
) -> Outcome:
    """Return the outcome of a TrainJob that has ended.

    Args:
        job: the TrainJob as last seen, even if it is deleted by now.
        verdict: verdict on its end.
        evidence: evidence about its end.
        warnings: what else users should know, one sentence each; they follow those of the evidence.
    """
    verdict = with_policy_rule(verdict, evidence.events, evidence.jobset)
    first = evidence.pods.find_first_failure(verdict)
    process = evidence.killed or find_failed_process(evidence.log_tail) if first else None
    process = process.with_step(evidence.rank_ends) if process else None
    watchdogs = evidence.watchdogs or [each for line in evidence.log_tail if (each := WatchdogReport.from_line(line))]
    hang, hung_on = "", list[str]()
    if is_hang(watchdogs) and verdict.phase is not Phase.COMPLETE:
        machines = find_machines(evidence.pods.all)
        hang = describe_hang(watchdogs, machines)
        hung_on = sorted({machines[node] for node in find_hanging_nodes(watchdogs) & machines.keys()})
    category, message = _categorize(verdict, first, evidence.log_tail, process), _message(verdict, first)
    # The pods of other ranks may fail before the one whose watchdog ends the training, because they lose its ranks.
    was_ended = any(report.is_alarm and report.action != "report" for report in watchdogs)
    category = Category.HUNG if hang and was_ended and category is Category.APPLICATION else category
    if category is Category.DEADLINE:
        sidecars = get_sidecar_findings(evidence.pods.all, parse_time(_finished_at(job)))
        category = Category.SIDECAR if sidecars else category
        message = "; ".join([message, *map(str, merge_findings(sidecars))])
    meta = get_mapping(job, "metadata")
    return Outcome(
        job=get_str(meta, "name"),
        namespace=get_str(meta, "namespace"),
        uid=get_str(meta, "uid"),
        phase=verdict.phase,
        category=category,
        reason=verdict.reason,
        message=message,
        step=verdict.step or (first.step if first else ""),
        rank=first.rank if first else None,
        exit_code=first.exit_code if first else None,
        events=tuple(evidence.events),
        log_tail=tuple(evidence.log_tail),
        created=get_str(meta, "creationTimestamp"),
        finished=_finished_at(job),
        progress=_find_progress(job, evidence),
        warnings=(*evidence.warnings, *warnings),
        labels={str(name): str(value) for name, value in get_mapping(meta, "labels").items()},
        usage=evidence.usage,
        started=get_first_start(evidence.pods.all),
        restarts=count_restarts(evidence.pods.all),
        failed_process=process,
        hang=hang,
        hung_on=tuple(hung_on),
        watchdog_action=watchdogs[0].action if hang else "",
    )


def _find_progress(job: Mapping[str, Any], evidence: Evidence) -> Progress | None:
    """Return the progress in the log and in the TrainJob's status.

    A training may write only one of them. The steps of its ranks were of a moment before its end.
    """
    reported = read_trainer_status(job)
    return replace(evidence.progress, ranks=None).with_report(reported) if evidence.progress else reported


def _seconds_between(begin: str, end: str) -> float | None:
    """Return the seconds between two RFC 3339 times.

    The result is None if one of the times is missing or has no time zone.
    """
    try:
        start, stop = (datetime.fromisoformat(text.replace("Z", "+00:00")) for text in (begin, end))
        return (stop - start).total_seconds()
    except (ValueError, TypeError):
        return None


def _message(verdict: Verdict, first: ContainerFailure | None) -> str:
    """Return the verdict's message, and the reason why its first failed pod ended.

    A JobSet says only that a Job failed. The reason is left out if it adds nothing to the message.
    """
    if first is None or first.reason == "Error" or first.reason in verdict.message:
        return verdict.message
    cause = f"{first.reason}: {first.message.strip().splitlines()[0][:300]}" if first.message.strip() else first.reason
    return f"{verdict.message}; {cause}" if verdict.message else cause


def _categorize(
    verdict: Verdict, first: ContainerFailure | None, log_tail: Sequence[str], process: ProcessFailure | None
) -> Category:
    if verdict.phase is Phase.COMPLETE:
        return Category.SUCCEEDED
    if verdict.phase is Phase.DELETED:
        return Category.DELETED
    known = find_category(verdict.reason, verdict.message)
    if known and known is not Category.POLICY:
        return known
    if first is None:
        return known or Category.UNKNOWN
    step_category = Category.INITIALIZER if first.step in INITIALIZERS else Category.APPLICATION
    if process and process.exit_code == -signal.SIGKILL:
        step_category = Category.OUT_OF_MEMORY  # probably by the kernel; the kubelet reports only ends of containers
    return find_category(first.reason, first.message) or known or categorize_log(log_tail) or step_category


def _finished_at(job: Mapping[str, Any]) -> str:
    for condition in get_list(job, "status", "conditions"):
        if condition.get("type") in (Phase.COMPLETE.value, Phase.FAILED.value) and condition.get("status") == "True":
            return get_str(condition, "lastTransitionTime")
    return ""
