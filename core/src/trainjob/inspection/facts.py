"""Facts about one TrainJob: its spec, steps, pods, events and timeline; no I/O.

They are JSON values, so the text report and the JSON output have the same facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trainjob.manifest import labels
from trainjob.spec.queue import PRIORITY_LABEL
from trainjob.status import find_failures, pending_reasons
from trainjob.status.diagnostics import event_time
from trainjob.status.nested_fields import get_int, get_list, get_mapping, get_str
from trainjob.status.pods import container_statuses, rank_of, step_of, trim_scheduler_message
from trainjob.status.verdict import INITIALIZERS, QUEUE_LABEL

_MAX_EVENTS = 12
_COUNTERS = ("active", "ready", "succeeded", "failed")


def spec_facts(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a TrainJob sets; fields that its runtime sets are omitted.

    Environment variables are listed by name only; their values are in the object.
    """
    spec, job_labels = get_mapping(job, "spec"), get_mapping(job, "metadata", "labels")
    trainer, initializer = get_mapping(spec, "trainer"), get_mapping(spec, "initializer")
    sources = {kind: get_str(initializer, kind, "storageUri") for kind in ("dataset", "model")}
    facts = {
        "runtime": {"kind": get_str(spec, "runtimeRef", "kind"), "name": get_str(spec, "runtimeRef", "name")},
        "image": get_str(trainer, "image"),
        "command": command_of(job),
        "code": labels.get_code(get_mapping(job, "metadata")),
        "env": [get_str(variable, "name") for variable in get_list(trainer, "env")],
        "nodes": get_int(trainer, "numNodes") or None,
        "processes_per_node": trainer.get("numProcPerNode"),
        "resources_per_node": dict(get_mapping(trainer, "resourcesPerNode", "limits"))
        or dict(get_mapping(trainer, "resourcesPerNode", "requests")),
        "initializers": {kind: uri for kind, uri in sources.items() if uri},
        "claims": sorted(set(_claim_names(spec))),
        "queue": get_str(job_labels, QUEUE_LABEL),
        "priority_class": get_str(job_labels, PRIORITY_LABEL),
        "deadline_seconds": get_int(spec, "activeDeadlineSeconds") or None,
    }
    return {name: value for name, value in facts.items() if value not in (None, "", [], {})}


def command_of(job: Mapping[str, Any]) -> list[str]:
    """Return the trainer's command and arguments; empty if the runtime defines them."""
    trainer = get_mapping(job, "spec", "trainer")
    parts = [trainer.get(name) for name in ("command", "args")]
    return [str(word) for part in parts if isinstance(part, list | tuple) for word in part]


def step_facts(job: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the replicated jobs with the counts of their Jobs in the status.

    The list is empty with Trainer 2.0, and before the Trainer has counted them.
    """
    counted = get_list(job, "status", "jobsStatus")
    return [{"name": get_str(step, "name"), **{name: get_int(step, name) for name in _COUNTERS}} for step in counted]


def pod_facts(pods: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the facts about each pod, sorted by step and rank, initializers first."""
    facts = [_facts_of_pod(pod) for pod in pods]
    return sorted(facts, key=lambda pod: (pod["step"] not in INITIALIZERS, pod["step"], pod["rank"], pod["name"]))


def _facts_of_pod(pod: Mapping[str, Any]) -> dict[str, Any]:
    statuses, failed = container_statuses(pod), find_failures([pod])
    ended = [get_mapping(status, "state", "terminated") for status in statuses]
    codes = [failure.exit_code for failure in failed] or [0 for state in ended if state.get("exitCode") == 0]
    reasons = [failure.reason for failure in failed if failure.reason != "Error"]
    deleted = bool(get_str(pod, "metadata", "deletionTimestamp"))
    return {
        "name": get_str(pod, "metadata", "name"),
        "step": step_of(pod),
        "rank": rank_of(pod),
        "node": get_str(pod, "spec", "nodeName"),
        "phase": "Terminating" if deleted else get_str(pod, "status", "phase") or "Pending",
        "restarts": sum(get_int(status, "restartCount") for status in statuses),
        "exit_code": codes[0] if codes else None,
        "reason": "; ".join([*pending_reasons([pod]), *reasons]),
    }


def event_facts(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the 12 newest events, the newest first.

    Events with the same object, reason and message are merged, with the sum of their counts.
    """
    merged: dict[tuple[str, str, str], dict[str, Any]] = {}
    distinct = {get_str(event, "metadata", "uid") or str(id(event)): event for event in events}
    for event in sorted(distinct.values(), key=event_time, reverse=True):
        about = f"{get_str(event, 'involvedObject', 'kind')} {get_str(event, 'involvedObject', 'name')}"
        fact: dict[str, Any] = {
            "time": event_time(event),
            "type": get_str(event, "type"),
            "reason": get_str(event, "reason"),
            "about": about,
            "message": trim_scheduler_message(get_str(event, "message").strip()),
            "count": 0,
        }
        first = merged.setdefault((about, fact["reason"], fact["message"]), fact)
        first["count"] += max(1, get_int(event, "count"), get_int(event, "series", "count"))
    return list(merged.values())[:_MAX_EVENTS]


def build_timeline(job: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the timeline of a TrainJob as `time` (RFC 3339) and `what`, the earliest first."""
    starts_by_step: dict[str, list[str]] = {}
    for pod in pods:
        states = [get_mapping(status, "state") for status in container_statuses(pod)]
        starts = [get_str(state, kind, "startedAt") for state in states for kind in ("running", "terminated")]
        starts_by_step.setdefault(step_of(pod), []).extend(start for start in starts if start)
    entries = [  # entries of the same second keep this order
        (get_str(job, "metadata", "creationTimestamp"), "created"),
        (labels.get_adoption_time(job), "adopted by a later try of the same step"),
        *((min(starts), f"{step}: first container started") for step, starts in starts_by_step.items() if starts),
        *(
            (get_str(condition, "lastTransitionTime"), _format_condition(condition))
            for condition in get_list(job, "status", "conditions")
        ),
        (get_str(job, "metadata", "deletionTimestamp"), "deleted"),
    ]
    return [{"time": when, "what": what} for when, what in sorted(entries, key=lambda entry: entry[0]) if when and what]


def _format_condition(condition: Mapping[str, Any]) -> str:
    kind, is_true = get_str(condition, "type"), condition.get("status") == "True"
    reason = get_str(condition, "reason")
    if kind == "Suspended" and not is_true:
        return "admitted, or resumed"
    return f"{kind.lower()} ({reason})" if is_true and reason else kind.lower() if is_true else ""


def _claim_names(value: Any) -> Iterator[str]:
    """Yield the names of the claims in a spec, in any dialect."""
    if isinstance(value, Mapping):
        if claim := get_str(value, "persistentVolumeClaim", "claimName"):
            yield claim
        for inner in value.values():
            yield from _claim_names(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _claim_names(inner)
