"""Facts about one TrainJob: its spec, steps, pods, events and timeline; no I/O.

They are JSON values, so the text report and the JSON output have the same facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trainjob.manifest import labels
from trainjob.spec.resources import PRIORITY_LABEL
from trainjob.status import failures, pending_reasons
from trainjob.status.findings import event_time
from trainjob.status.pods import container_statuses, rank_of, step_of
from trainjob.status.reading import number, rows, table, text
from trainjob.status.verdict import INITIALIZERS, QUEUE_LABEL

_EVENTS = 12
_COUNTERS = ("active", "ready", "succeeded", "failed")


def spec_facts(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a TrainJob sets; what it leaves to its runtime is omitted.

    Environment variables are listed by name only; their values are in the object.
    """
    spec, marks = table(job, "spec"), table(job, "metadata", "labels")
    trainer, initializer = table(spec, "trainer"), table(spec, "initializer")
    sources = {kind: text(initializer, kind, "storageUri") for kind in ("dataset", "model")}
    facts = {
        "runtime": {"kind": text(spec, "runtimeRef", "kind"), "name": text(spec, "runtimeRef", "name")},
        "image": text(trainer, "image"),
        "command": command_of(job),
        "env": [text(variable, "name") for variable in rows(trainer, "env")],
        "nodes": number(trainer, "numNodes") or None,
        "processes_per_node": trainer.get("numProcPerNode"),
        "resources_per_node": dict(table(trainer, "resourcesPerNode", "limits"))
        or dict(table(trainer, "resourcesPerNode", "requests")),
        "initializers": {kind: uri for kind, uri in sources.items() if uri},
        "claims": sorted(set(_claims(spec))),
        "queue": text(marks, QUEUE_LABEL),
        "priority_class": text(marks, PRIORITY_LABEL),
        "deadline_seconds": number(spec, "activeDeadlineSeconds") or None,
    }
    return {name: value for name, value in facts.items() if value not in (None, "", [], {})}


def command_of(job: Mapping[str, Any]) -> list[str]:
    """Return the trainer's command and arguments; empty if the runtime defines them."""
    trainer = table(job, "spec", "trainer")
    parts = [trainer.get(name) for name in ("command", "args")]
    return [str(word) for part in parts if isinstance(part, list | tuple) for word in part]


def step_facts(job: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the replicated jobs with the counts of their Jobs in the status.

    The list is empty with Trainer 2.0, and before the Trainer has counted them.
    """
    counted = rows(job, "status", "jobsStatus")
    return [{"name": text(one, "name"), **{name: number(one, name) for name in _COUNTERS}} for one in counted]


def pod_facts(pods: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the facts about each pod, sorted by step and rank, initializers first."""
    found = [_pod(pod) for pod in pods]
    return sorted(found, key=lambda one: (one["step"] not in INITIALIZERS, one["step"], one["rank"], one["name"]))


def _pod(pod: Mapping[str, Any]) -> dict[str, Any]:
    statuses, failed = container_statuses(pod), failures([pod])
    ended = [table(one, "state", "terminated") for one in statuses]
    codes = [failure.exit_code for failure in failed] or [0 for one in ended if one.get("exitCode") == 0]
    reasons = [failure.reason for failure in failed if failure.reason != "Error"]
    deleted = bool(text(pod, "metadata", "deletionTimestamp"))
    return {
        "name": text(pod, "metadata", "name"),
        "step": step_of(pod),
        "rank": rank_of(pod),
        "node": text(pod, "spec", "nodeName"),
        "phase": "Terminating" if deleted else text(pod, "status", "phase") or "Pending",
        "restarts": sum(number(one, "restartCount") for one in statuses),
        "exit_code": codes[0] if codes else None,
        "reason": "; ".join([*pending_reasons([pod]), *reasons]),
    }


def event_facts(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the 12 newest events, the newest first.

    Events with the same object, reason and message are merged, with the sum of their counts.
    """
    folded: dict[tuple[str, str, str], dict[str, Any]] = {}
    distinct = {text(event, "metadata", "uid") or str(id(event)): event for event in events}
    for event in sorted(distinct.values(), key=event_time, reverse=True):
        about = f"{text(event, 'involvedObject', 'kind')} {text(event, 'involvedObject', 'name')}"
        told: dict[str, Any] = {
            "time": event_time(event),
            "type": text(event, "type"),
            "reason": text(event, "reason"),
            "about": about,
            "message": text(event, "message").strip(),
            "count": 0,
        }
        one = folded.setdefault((about, told["reason"], told["message"]), told)
        one["count"] += max(1, number(event, "count"), number(event, "series", "count"))
    return list(folded.values())[:_EVENTS]


def time_line(job: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the timeline of a TrainJob as `time` (RFC 3339) and `what`, the earliest first."""
    begun: dict[str, list[str]] = {}
    for pod in pods:
        states = [table(one, "state") for one in container_statuses(pod)]
        starts = [text(state, kind, "startedAt") for state in states for kind in ("running", "terminated")]
        begun.setdefault(step_of(pod), []).extend(start for start in starts if start)
    moments = [  # moments of the same second keep this order
        (text(job, "metadata", "creationTimestamp"), "created"),
        (labels.adopted_at(job), "taken over by a later try of the same step"),
        *((min(starts), f"{step}: first container started") for step, starts in begun.items() if starts),
        *((text(one, "lastTransitionTime"), _turn(one)) for one in rows(job, "status", "conditions")),
        (text(job, "metadata", "deletionTimestamp"), "deleted"),
    ]
    return [{"time": when, "what": what} for when, what in sorted(moments, key=lambda one: one[0]) if when and what]


def _turn(condition: Mapping[str, Any]) -> str:
    kind, holds = text(condition, "type"), condition.get("status") == "True"
    reason = text(condition, "reason")
    if kind == "Suspended" and not holds:
        return "admitted, or resumed"
    return f"{kind.lower()} ({reason})" if holds and reason else kind.lower() if holds else ""


def _claims(value: Any) -> Iterator[str]:
    """Yield the names of the claims in a spec, in any dialect."""
    if isinstance(value, Mapping):
        if claim := text(value, "persistentVolumeClaim", "claimName"):
            yield claim
        for inner in value.values():
            yield from _claims(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _claims(inner)
