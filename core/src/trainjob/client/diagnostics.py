"""Gathering the evidence about a job that ended badly, or that does not get going."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from trainjob.client.log_lines import Tail, Transcript
from trainjob.errors import ClusterError
from trainjob.status.findings import event_time
from trainjob.status.pods import ContainerFailure, claims_of
from trainjob.status.reading import text

if TYPE_CHECKING:
    from trainjob.client.cluster import Cluster

_LOG_LINES = 20
_EVENTS = 8
# A container that fails and is started again; the failure itself is told with its exit code.
_NOISE = frozenset({"BackOff"})


def warnings_about(
    cluster: Cluster, namespace: str, trainjob: str, pods: Iterable[Mapping[str, Any]], *, since: str = ""
) -> list[str]:
    """The newest Warning events about a TrainJob, its JobSet and Jobs, and its pods, one line each, oldest first.

    Empty when events can't be read: a diagnosis must not fail the job it is about.

    Args:
        cluster: where to look.
        namespace: the TrainJob's namespace.
        trainjob: its name.
        pods: those of its pods that are known.
        since: RFC 3339 time of its creation: events outlive an earlier job of its name.
    """
    try:
        found = warning_events(cluster, namespace, trainjob, pods)
    except ClusterError:
        return []
    ours = [event for event in found if text(event, "metadata", "creationTimestamp") >= since]
    told = [event for event in ours if event.get("reason") not in _NOISE]
    lines = [f"{event.get('reason', '')}: {event.get('message', '')}" for event in told]
    return list(dict.fromkeys(lines))[-_EVENTS:]


def warning_events(
    cluster: Cluster, namespace: str, trainjob: str, pods: Iterable[Mapping[str, Any]], *, recent: bool = False
) -> list[dict[str, Any]]:
    """All Warning events about a TrainJob, its JobSet and Jobs, its pods and their claims, oldest first.

    Args:
        cluster: where to look.
        namespace: the TrainJob's namespace.
        trainjob: its name.
        pods: those of its pods that are known.
        recent: events up to 15 s old will do, which all who look share.

    Raises:
        ClusterError: the events can't be read.
    """
    claims = {name for pod in pods for name in claims_of(pod)}
    if recent:
        found = cluster.diagnostics.warnings(namespace)
        events = [event for name in (trainjob, *sorted(claims)) for event in found.get(name, ())]
    else:
        events = cluster.list_events(namespace, "type=Warning")
    return sorted((event for event in events if _is_about(event, trainjob, claims)), key=event_time)


def _is_about(event: Mapping[str, Any], trainjob: str, claims: set[str]) -> bool:
    kind, name = text(event, "involvedObject", "kind"), text(event, "involvedObject", "name")
    if kind == "PersistentVolumeClaim":
        return name in claims
    # Jobs and pods are called `<trainjob>-<replicated job>-<index>...`; a gone pod's events are wanted too.
    return name == trainjob or (name.startswith(f"{trainjob}-") and kind in ("Job", "JobSet", "Pod"))


def last_lines(cluster: Cluster, namespace: str, failure: ContainerFailure) -> list[str]:
    """The last log lines of a failed container, also after it was restarted; empty when its log is gone.

    The kubelet may have restarted it since it was seen to fail: then its log is the previous one by now.
    """
    for previous in (True,) if failure.restarted else (False, True):
        with contextlib.suppress(ClusterError):
            if lines := _read_tail(cluster, namespace, failure.pod, failure.container, previous=previous):
                return lines
    return []


def last_lines_of(cluster: Cluster, namespace: str, pod: Mapping[str, Any], container: str) -> list[str]:
    """The last log lines of a container, whatever became of it; empty when they can't be read."""
    with contextlib.suppress(ClusterError):
        return _read_tail(cluster, namespace, text(pod, "metadata", "name"), container, previous=False)
    return []


def _read_tail(cluster: Cluster, namespace: str, pod: str, container: str, *, previous: bool) -> list[str]:
    stream = cluster.open_log(pod, namespace, container, previous=previous, tail=_LOG_LINES, read_seconds=10.0)
    found, transcript = Tail(_LOG_LINES), Transcript()
    try:
        with contextlib.suppress(ClusterError):  # what came until then is better than nothing
            for lines in transcript.read(stream):
                found.extend(lines)
    finally:
        stream.close()
    found.extend(transcript.rest())
    return list(found.lines)
