"""Gathering the evidence about a job that ended badly, or that does not get going."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from trainjob.cluster.logs import stamped_lines
from trainjob.errors import ClusterError
from trainjob.status.pods import ContainerFailure

if TYPE_CHECKING:
    from trainjob.cluster.api import Cluster

_LOG_LINES = 20
_EVENTS = 8
# A container that fails and is started again; the failure itself is told with its exit code.
_NOISE = frozenset({"BackOff"})


def warnings_about(cluster: Cluster, namespace: str, trainjob: str, pods: Iterable[Mapping[str, Any]]) -> list[str]:
    """The newest Warning events about a TrainJob, its JobSet and Jobs, and its pods, one line each, oldest first.

    Empty when events can't be read: a diagnosis must not fail the job it is about.
    """
    ours = {trainjob, *(pod["metadata"]["name"] for pod in pods)}
    try:
        events = cluster.list_events(namespace, "type=Warning")
    except ClusterError:
        return []
    found = [event for event in events if _is_about(event["involvedObject"], trainjob, ours)]
    found.sort(key=_event_time)
    told = [event for event in found if event.get("reason") not in _NOISE]
    lines = [f"{event.get('reason', '')}: {event.get('message', '')}" for event in told]
    return list(dict.fromkeys(lines))[-_EVENTS:]


def _is_about(involved: Mapping[str, Any], trainjob: str, ours: set[str]) -> bool:
    name = str(involved.get("name", ""))
    # Jobs and pods are called `<trainjob>-<replicated job>-<index>...`; a gone pod's events are wanted too.
    return name in ours or (name.startswith(f"{trainjob}-") and involved.get("kind") in ("Job", "JobSet", "Pod"))


def _event_time(event: Mapping[str, Any]) -> str:
    """Controllers that write through events.k8s.io leave lastTimestamp empty (Trainer 2.2 and JobSet 0.11 on)."""
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or "")


def last_lines(cluster: Cluster, namespace: str, failure: ContainerFailure) -> list[str]:
    """The last log lines of a failed container, also after it was restarted; empty when its log is gone.

    The kubelet may have restarted it since it was seen to fail: then its log is the previous one by now.
    """
    for previous in (True,) if failure.restarted else (False, True):
        with contextlib.suppress(ClusterError):
            if lines := _read_tail(cluster, namespace, failure, previous=previous):
                return lines
    return []


def _read_tail(cluster: Cluster, namespace: str, failure: ContainerFailure, *, previous: bool) -> list[str]:
    stream = cluster.open_log(
        failure.pod, namespace, failure.container, previous=previous, tail=_LOG_LINES, read_seconds=10.0
    )
    try:
        return [line.text for line in stamped_lines(stream) if not line.partial][-_LOG_LINES:]
    finally:
        stream.close()
