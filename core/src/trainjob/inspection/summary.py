"""Summary of one TrainJob, for lists and tables of TrainJobs; no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from trainjob.lifecycle.identity import RunKey, run_key_of
from trainjob.manifest import labels
from trainjob.status import Phase, Verdict, derive_verdict, pending_reasons
from trainjob.status.failed_mark import read_failed_mark
from trainjob.status.nested_fields import get_int, get_mapping, get_str, true_conditions
from trainjob.status.verdict import QUEUE_LABEL

_END_CONDITIONS = (Phase.FAILED.value, Phase.COMPLETE.value)
_MAX_REASONS = 3  # a message has at most this many reasons why pods do not run


@dataclass(frozen=True)
class Summary:
    """Summary of one TrainJob in a list.

    Attributes:
        namespace: its namespace.
        name: its name.
        uid: its uid.
        phase: its phase.
        step: the replicated job that is running, or that failed first.
        reason: one word for the reason of its phase; empty if there is none.
        message: the reason of its phase as text; empty if there is none.
        queue: its Kueue queue; empty if it names none.
        runtime: its runtime's name.
        percent: progress that its trainer reports, 0-100 (`status.trainerStatus`, Trainer 2.2 and later); None if it
            reports none.
        created: RFC 3339 time of its creation.
        ended: RFC 3339 time of its end; empty while it has not ended.
        attempt: its number among the TrainJobs of its run key; 0 if it has no attempt label.
        run_key: its run key; None if it has none.
    """

    namespace: str
    name: str
    uid: str
    phase: Phase
    step: str
    reason: str
    message: str
    queue: str
    runtime: str
    percent: int | None
    created: str
    ended: str
    attempt: int
    run_key: RunKey | None

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as JSON values."""
        return {**asdict(self), "phase": self.phase.value}


def summarize(job: Mapping[str, Any], pods: Iterable[Mapping[str, Any]] = ()) -> Summary:
    """Return the summary of a TrainJob.

    Args:
        job: the TrainJob as the API server returns it.
        pods: its known pods, which add facts that its status does not have.
    """
    pods, meta = list(pods), get_mapping(job, "metadata")
    verdict = derive_verdict(job, pods)
    return Summary(
        namespace=get_str(meta, "namespace"),
        name=get_str(meta, "name"),
        uid=get_str(meta, "uid"),
        phase=verdict.phase,
        step=verdict.step,
        reason="" if verdict.phase is Phase.COMPLETE else verdict.reason,
        message=_message(verdict, pods),
        queue=get_str(meta, "labels", QUEUE_LABEL),
        runtime=get_str(job, "spec", "runtimeRef", "name"),
        percent=_reported_percent(job),
        created=get_str(meta, "creationTimestamp"),
        ended=_end_time(job),
        attempt=get_int(meta, "labels", labels.ATTEMPT),
        run_key=_find_run_key(job),
    )


def _reported_percent(job: Mapping[str, Any]) -> int | None:
    """Return the progress in percent that the trainer reports; None if it reports none.

    Trainer 2.2 and later have it (TrainJobStatus in pkg/apis/trainer/v1alpha1).
    """
    status = get_mapping(job, "status", "trainerStatus")
    return get_int(status, "progressPercentage") if "progressPercentage" in status else None


def _message(verdict: Verdict, pods: Iterable[Mapping[str, Any]]) -> str:
    if verdict.phase is Phase.COMPLETE:
        return ""
    waiting = [] if verdict.phase.finished else pending_reasons(pods)
    return verdict.message or "; ".join(waiting[:_MAX_REASONS])


def _end_time(job: Mapping[str, Any]) -> str:
    true = true_conditions(job)
    ends = [get_str(true[end], "lastTransitionTime") for end in _END_CONDITIONS if end in true]
    return next(iter(ends), "") or get_str(job, "metadata", "deletionTimestamp") or get_str(read_failed_mark(job), "at")


def _find_run_key(job: Mapping[str, Any]) -> RunKey | None:
    """Return the run key from the annotation, or from the labels if the annotation is invalid.

    The annotation has the complete names; labels may be shortened.
    """
    if key := run_key_of(job):
        return key
    names = (labels.ENGINE, labels.WORKFLOW, labels.TASK, labels.RUN)
    engine, *others = (get_str(job, "metadata", "labels", name) for name in names)
    return RunKey(engine, *others) if engine else None
