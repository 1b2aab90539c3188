"""One TrainJob in a line: what a list or a table of many shows of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from trainjob.lifecycle.identity import RunKey, run_key_of
from trainjob.manifest import labels
from trainjob.status import Phase, Verdict, judge, pending_reasons
from trainjob.status.left import left_as_failed
from trainjob.status.reading import number, table, text, true_conditions
from trainjob.status.verdict import QUEUE_LABEL

_ENDS = (Phase.FAILED.value, Phase.COMPLETE.value)
_TOLD = 3  # reasons why pods do not run, of many


@dataclass(frozen=True)
class Summary:
    """What is told of one TrainJob among many.

    Attributes:
        namespace: where it is.
        name: its name.
        uid: its uid.
        phase: where it is in its life.
        step: the replicated job that works now, or that failed first.
        reason: why it is in this phase, as one word; empty where there is nothing to tell.
        message: the same, for a person.
        queue: its Kueue queue; empty without one.
        runtime: its runtime's name.
        percent: how far its trainer says that it is, 0-100 (`status.trainerStatus`, Trainer 2.2 and later); None where
            it does not say.
        created: RFC 3339 time of its creation.
        ended: RFC 3339 time of its end; empty while it has none.
        attempt: the n-th TrainJob of who asked for it; 0 for one that is nobody's.
        asked_by: who asked for it; None where nothing tells.
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
    asked_by: RunKey | None

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {**asdict(self), "phase": self.phase.value}


def summarize(job: Mapping[str, Any], pods: Iterable[Mapping[str, Any]] = ()) -> Summary:
    """A TrainJob in a line.

    Args:
        job: as the API gives it.
        pods: its pods, as far as they are known: they say more where its status says little.
    """
    pods, meta = list(pods), table(job, "metadata")
    verdict = judge(job, pods)
    return Summary(
        namespace=text(meta, "namespace"),
        name=text(meta, "name"),
        uid=text(meta, "uid"),
        phase=verdict.phase,
        step=verdict.step,
        reason="" if verdict.phase is Phase.COMPLETE else verdict.reason,
        message=_message(verdict, pods),
        queue=text(meta, "labels", QUEUE_LABEL),
        runtime=text(job, "spec", "runtimeRef", "name"),
        percent=reported_percent(job),
        created=text(meta, "creationTimestamp"),
        ended=_ended(job),
        attempt=number(meta, "labels", labels.ATTEMPT),
        asked_by=_asker(job),
    )


def reported_percent(job: Mapping[str, Any]) -> int | None:
    """What a trainer reports of itself (Trainer 2.2 on, TrainJobStatus in pkg/apis/trainer/v1alpha1); None if none."""
    status = table(job, "status", "trainerStatus")
    return number(status, "progressPercentage") if "progressPercentage" in status else None


def _message(verdict: Verdict, pods: Iterable[Mapping[str, Any]]) -> str:
    if verdict.phase is Phase.COMPLETE:
        return ""
    waiting = [] if verdict.phase.finished else pending_reasons(pods)
    return verdict.message or "; ".join(waiting[:_TOLD])


def _ended(job: Mapping[str, Any]) -> str:
    true = true_conditions(job)
    ends = [text(true[end], "lastTransitionTime") for end in _ENDS if end in true]
    return next(iter(ends), "") or text(job, "metadata", "deletionTimestamp") or text(left_as_failed(job), "at")


def _asker(job: Mapping[str, Any]) -> RunKey | None:
    """By the run key, which has the whole names; by the labels where somebody has edited it."""
    if key := run_key_of(job):
        return key
    names = (labels.ENGINE, labels.WORKFLOW, labels.TASK, labels.RUN)
    engine, *others = (text(job, "metadata", "labels", name) for name in names)
    return RunKey(engine, *others) if engine else None
