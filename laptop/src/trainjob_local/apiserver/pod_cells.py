"""Cells of pods in tables.

Source: k8s.io/kubernetes 1.36 `pkg/printers/internalversion/printers.go`, printPod.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from trainjob_local.apiserver.durations import format_since

__all__ = ["build_pod_cells"]

Json = Mapping[str, Any]
_NONE = "<none>"


def build_pod_cells(pod: Json, now: datetime) -> list[Any]:
    """Return the cells of a pod: name, ready containers, status, restarts, age and more."""
    spec, status, metadata = pod.get("spec") or {}, pod.get("status") or {}, pod["metadata"]
    containers, ready = spec.get("containers") or (), 0
    reason = _init_reason(spec, status)
    counted = status.get("initContainerStatuses") or []
    if not reason:
        counted = status.get("containerStatuses") or []
        ready = sum(bool(one.get("ready")) and "running" in (one.get("state") or {}) for one in counted)
        reason = _container_reason(counted, status) or _phase_reason(status)
    if "deletionTimestamp" in metadata and status.get("phase") not in ("Succeeded", "Failed"):
        reason = "Terminating"
    addresses = status.get("podIPs") or [{}]
    return [
        metadata["name"],
        f"{ready}/{len(containers)}",
        reason,
        _restarts(counted, now),
        format_since(metadata.get("creationTimestamp"), now),
        addresses[0].get("ip") or _NONE,
        spec.get("nodeName") or _NONE,
        status.get("nominatedNodeName") or _NONE,
        _NONE,
    ]


def _phase_reason(status: Json) -> str:
    gated = any(one.get("reason") == "SchedulingGated" for one in status.get("conditions") or ())
    return "SchedulingGated" if gated else str(status.get("reason") or status.get("phase") or "")


def _init_reason(spec: Json, status: Json) -> str:
    """Return the status of a pod while it initializes, else an empty string."""
    for index, container in enumerate(status.get("initContainerStatuses") or ()):
        state = container.get("state") or {}
        ended, waiting = state.get("terminated"), (state.get("waiting") or {}).get("reason")
        if ended and not ended.get("exitCode"):
            continue
        if ended:
            return f"Init:{_end_reason(ended)}"
        if waiting and waiting != "PodInitializing":
            return f"Init:{waiting}"
        return f"Init:{index}/{len(spec['initContainers'])}"
    return ""


def _container_reason(statuses: Sequence[Json], status: Json) -> str:
    """Return why the first container waits or has ended; empty if all containers run."""
    reasons = list(_reasons(statuses))
    if not reasons or reasons[0] != "Completed":
        return reasons[0] if reasons else ""
    running = any(one.get("ready") and "running" in (one.get("state") or {}) for one in statuses)
    ready = any((one["type"], one["status"]) == ("Ready", "True") for one in status.get("conditions") or ())
    if running and ready:
        return "Running"
    failed = next((reason for reason in reasons if reason != "Completed"), "")
    return failed or ("NotReady" if running else "Completed")


def _reasons(statuses: Sequence[Json]) -> Iterator[str]:
    for one in statuses:
        state = one.get("state") or {}
        if waiting := (state.get("waiting") or {}).get("reason"):
            yield waiting
        elif ended := state.get("terminated"):
            yield _end_reason(ended)


def _end_reason(ended: Json) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode', 0)}"


def _restarts(statuses: Sequence[Json], now: datetime) -> str:
    count = sum(one.get("restartCount", 0) for one in statuses)
    ends = [(one.get("lastState") or {}).get("terminated", {}).get("finishedAt") or "" for one in statuses]
    return f"{count} ({format_since(max(ends), now)} ago)" if count and any(ends) else str(count)
