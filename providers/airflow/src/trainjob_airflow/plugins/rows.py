"""Table rows of the page for a TrainJob, its pods and its events, as JSON values.

The functions do no I/O. Specs are never shown, because environment variables, arguments and templates may contain
confidential values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from trainjob.client import event_time
from trainjob.lifecycle import reference_to
from trainjob.status import (
    Phase,
    Verdict,
    compute_usage,
    derive_verdict,
    find_failures,
    pending_reasons,
    read_trainer_status,
)
from trainjob.status.pods import rank_of, step_of
from trainjob.status.verdict import QUEUE_LABEL

_MAX_EVENTS = 30
_MAX_RANK_ROWS = 256


def get_instance_key(row: Mapping[str, Any]) -> tuple[str, str, str, int]:
    """Return the task instance of a row: DAG, run, task and map index.

    The map index of a plain task is -1.
    """
    return row["dag"], row["run"], row["task"], row["index"]


def job_row(
    job: Mapping[str, Any],
    instance: tuple[str, str, str, int],
    *,
    connection: str,
    pods: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the row of one TrainJob.

    Args:
        job: the TrainJob.
        instance: its task instance: DAG, run, task and map index.
        connection: ID of the Airflow connection of its cluster.
        pods: its known pods. They add reasons that the TrainJob's status lacks.
    """
    meta, verdict = job["metadata"], derive_verdict(job, pods)
    dag, run, task, index = instance
    return {
        "connection": connection,
        "namespace": meta["namespace"],
        "name": meta["name"],
        "uid": meta["uid"],
        "attempt": reference_to(job, adopted=False).attempt,
        "dag": dag,
        "run": run,
        "task": task,
        "index": index,
        "phase": verdict.phase.value,
        "step": verdict.step,
        "finished": verdict.phase.finished,
        "reason": _reason(verdict, pods),
        "queue": (meta.get("labels") or {}).get(QUEUE_LABEL, ""),
        "created": meta.get("creationTimestamp", ""),
        "ended": _ended_at(job) if verdict.phase.finished else "",
        "trainer_status": _trainer_status(job),
        "usage": compute_usage(job, pods, datetime.now(timezone.utc)).to_dict() if pods else None,
    }


def _trainer_status(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the progress that the trainer itself reports, in the form of the XCom `progress`."""
    progress = read_trainer_status(job)
    return {**progress.to_dict(), "percent": progress.percent} if progress else {}


def _reason(verdict: Verdict, pods: Iterable[Mapping[str, Any]]) -> str:
    if verdict.phase in (Phase.COMPLETE, Phase.RUNNING):
        return ""
    waiting = [] if verdict.phase.finished else pending_reasons(pods)
    return verdict.message or verdict.reason or "; ".join(waiting[:3])


def _ended_at(job: Mapping[str, Any]) -> str:
    true = [c for c in (job.get("status") or {}).get("conditions") or () if c.get("status") == "True"]
    ends = [c.get("lastTransitionTime", "") for c in true if c.get("type") in ("Complete", "Failed")]
    return str(ends[0] if ends else job["metadata"].get("deletionTimestamp", ""))


def condition_rows(job: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the TrainJob's conditions as the cluster reports them."""
    names = {"type": "type", "status": "status", "reason": "reason", "message": "message", "time": "lastTransitionTime"}
    conditions = (job.get("status") or {}).get("conditions") or ()
    return [{name: str(condition.get(key) or "") for name, key in names.items()} for condition in conditions]


def rank_rows(pods: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one row for each pod, by step and rank, at most 256 rows.

    If there are more pods, those with a reason are included first.
    """
    rows = [_rank_row(pod) for pod in pods]
    shown = sorted(rows, key=lambda row: (not row["reason"], row["step"], row["rank"]))[:_MAX_RANK_ROWS]
    return sorted(shown, key=lambda row: (row["step"], row["rank"], row["name"]))


def _rank_row(pod: Mapping[str, Any]) -> dict[str, Any]:
    status = pod.get("status") or {}
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    # A container's termination message is left out: it may be the end of its log, which not every user may read.
    failed = [
        failure.reason if failure.exit_code is None else f"exit code {failure.exit_code} ({failure.reason})"
        for failure in find_failures([pod])
    ]
    return {
        "name": pod["metadata"]["name"],
        "step": step_of(pod),
        "rank": rank_of(pod),
        "phase": "Terminating" if pod["metadata"].get("deletionTimestamp") else str(status.get("phase") or "Pending"),
        "restarts": sum(int(container.get("restartCount") or 0) for container in containers),
        "node": str((pod.get("spec") or {}).get("nodeName") or ""),
        "reason": "; ".join([*pending_reasons([pod]), *failed]),
    }


def event_rows(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the newest 30 events, the newest first.

    An event that is in the input twice is included once.
    """
    found = {event["metadata"].get("uid") or id(event): event for event in events}
    newest = sorted(found.values(), key=event_time, reverse=True)[:_MAX_EVENTS]
    return [
        {
            "time": event_time(event),
            "type": str(event.get("type") or ""),
            "reason": str(event.get("reason") or ""),
            "object": f"{event['involvedObject'].get('kind', '')} {event['involvedObject'].get('name', '')}",
            "message": str(event.get("message") or event.get("note") or ""),
            "count": int(event.get("count") or 1),
        }
        for event in newest
    ]
