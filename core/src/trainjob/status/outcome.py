"""How a TrainJob ended, with the evidence: what failed, where, why, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from enum import Enum
from typing import Any

from trainjob.errors import JobDeleted, JobFailed
from trainjob.status.pods import ContainerFailure
from trainjob.status.progress import Progress
from trainjob.status.verdict import Phase, Verdict

RESTART_LIMIT_EXCEEDED = "RestartLimitExceeded"
"""Our own reason for a job that we ended because its container failed more often than allowed."""


class Category(str, Enum):
    """Who has to act on a failure; the one table that says whether trying again can help is [_ADVICE][]."""

    SUCCEEDED = "Succeeded"
    APPLICATION = "Application"
    """The step's own command ended with an error."""
    OUT_OF_MEMORY = "OutOfMemory"
    INFRASTRUCTURE = "Infrastructure"
    """The pod was evicted, preempted, or lost with its node."""
    DEADLINE = "Deadline"
    DELETED = "Deleted"
    UNKNOWN = "Unknown"


_ADVICE: Mapping[Category, tuple[bool, str]] = {
    Category.SUCCEEDED: (False, ""),
    Category.APPLICATION: (False, "read the step's last log lines above; the command itself ended with an error"),
    Category.OUT_OF_MEMORY: (False, "give the step more memory (resources_per_node) or make batches or model smaller"),
    Category.INFRASTRUCTURE: (True, "the node or the scheduler ended the pod; a retry starts a new attempt"),
    Category.DEADLINE: (False, "raise the deadline, or find out why the step is slow"),
    Category.DELETED: (True, "somebody deleted the TrainJob; a retry starts a new attempt"),
    Category.UNKNOWN: (True, "describe the TrainJob and its JobSet; their events may say more"),
}
# Reasons the kubelet, the scheduler and the node lifecycle controller give a pod they end (Kubernetes 1.36).
_INFRASTRUCTURE = frozenset(
    {"Evicted", "Preempting", "NodeLost", "NodeShutdown", "Shutdown", "Terminated", "UnexpectedAdmissionError"}
)


@dataclass(frozen=True)
class Outcome:
    """The end of one TrainJob.

    Attributes:
        job: the TrainJob's name.
        namespace: where it lived.
        uid: its uid.
        phase: Complete, Failed or Deleted.
        category: who has to act.
        reason: the condition's reason, or ours where there is none.
        message: the condition's message, or ours.
        step: the replicated job that failed first, such as `node`.
        rank: the rank of the container that failed first.
        exit_code: the exit code of that container, 1-255.
        events: recent warnings about the job and its pods, one line each.
        log_tail: the last lines of the container that failed first.
        created: RFC 3339 time of the TrainJob's creation.
        finished: RFC 3339 time of the end, as the cluster saw it; empty when it does not say.
        progress: the last progress the training's log told.
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

    @property
    def succeeded(self) -> bool:
        """Whether the step did its work."""
        return self.phase is Phase.COMPLETE

    @property
    def retryable(self) -> bool:
        """Whether the same step may succeed without anybody changing anything."""
        return _ADVICE[self.category][0]

    @property
    def seconds(self) -> float | None:
        """Seconds from creation to the end by the cluster's clock, queueing included; None when it is not known."""
        if not (self.created and self.finished):
            return None
        begin, end = (datetime.fromisoformat(text.replace("Z", "+00:00")) for text in (self.created, self.finished))
        return (end - begin).total_seconds()

    def explain(self) -> str:
        """The whole story for a person, several lines: what, where, why, the last log lines."""
        where = f"TrainJob {self.namespace}/{self.job}"
        if self.succeeded:
            return f"{where} is complete"
        failed = f"{where} {self.phase.value.lower()}"
        if self.step:
            failed += f" in step {self.step}" + ("" if self.rank is None else f", rank {self.rank}")
        if self.exit_code is not None:
            failed += f", exit code {self.exit_code}"
        lines = [f"{failed}: {self.reason}" + (f": {self.message}" if self.message else "")]
        lines += [f"  event: {event}" for event in self.events]
        lines += [f"  log: {line}" for line in self.log_tail]
        return "\n".join(lines)

    def raise_for_failure(self) -> None:
        """Do nothing after success.

        Raises:
            JobDeleted: the TrainJob was deleted by somebody else.
            JobFailed: it failed.
        """
        if self.succeeded:
            return
        error = JobDeleted if self.phase is Phase.DELETED else JobFailed
        failure = error(self.explain(), outcome=self, hint=_ADVICE[self.category][1])
        failure.retryable = self.retryable
        raise failure

    def to_dict(self) -> dict[str, Any]:
        """As JSON values, for XCom, output files and triggers' events."""
        values = asdict(self)
        values["phase"], values["category"] = self.phase.value, self.category.value
        values["events"], values["log_tail"] = list(self.events), list(self.log_tail)
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Outcome:
        """The inverse of [to_dict][]; unknown keys, of a newer version, are left out."""
        known = {f.name: values[f.name] for f in fields(cls) if f.name in values}
        known["phase"], known["category"] = Phase(known["phase"]), Category(known["category"])
        known["events"], known["log_tail"] = tuple(known.get("events", ())), tuple(known.get("log_tail", ()))
        if known.get("progress"):
            known["progress"] = Progress(**known["progress"])
        return cls(**known)


def conclude(
    job: Mapping[str, Any],
    verdict: Verdict,
    failures: Sequence[ContainerFailure] = (),
    *,
    events: Sequence[str] = (),
    log_tail: Sequence[str] = (),
    progress: Progress | None = None,
) -> Outcome:
    """Put the verdict and the evidence together.

    Args:
        job: the TrainJob as last seen (also when it is deleted by now).
        verdict: how it ended.
        failures: its failed containers, the first to fail first.
        events: warnings worth showing, one line each.
        log_tail: the last lines of the container that failed first.
        progress: the last progress seen.
    """
    first = next((f for f in failures if not verdict.step or f.step == verdict.step), None)
    if verdict.phase is Phase.COMPLETE:
        first = None
    meta = job["metadata"]
    return Outcome(
        job=meta["name"],
        namespace=meta.get("namespace", ""),
        uid=meta.get("uid", ""),
        phase=verdict.phase,
        category=_categorize(verdict, first),
        reason=verdict.reason,
        message=verdict.message,
        step=verdict.step or (first.step if first else ""),
        rank=first.rank if first else None,
        exit_code=first.exit_code if first else None,
        events=tuple(events),
        log_tail=tuple(log_tail),
        created=meta.get("creationTimestamp", ""),
        finished=_finished_at(job),
        progress=progress,
    )


def _categorize(verdict: Verdict, first: ContainerFailure | None) -> Category:
    if verdict.phase is Phase.COMPLETE:
        return Category.SUCCEEDED
    if verdict.phase is Phase.DELETED:
        return Category.DELETED
    if verdict.reason == "DeadlineExceeded":
        return Category.DEADLINE
    if first is None:
        return Category.UNKNOWN
    if first.reason == "OOMKilled":
        return Category.OUT_OF_MEMORY
    if first.reason in _INFRASTRUCTURE:
        return Category.INFRASTRUCTURE
    return Category.APPLICATION


def _finished_at(job: Mapping[str, Any]) -> str:
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition.get("type") in (Phase.COMPLETE.value, Phase.FAILED.value) and condition.get("status") == "True":
            return str(condition.get("lastTransitionTime", ""))
    return ""
