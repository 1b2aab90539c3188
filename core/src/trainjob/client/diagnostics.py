"""Evidence about a TrainJob that failed or does not start: Warning events and log lines."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from trainjob.client.log_lines import LogLine, Tail
from trainjob.client.log_reader import LogReader
from trainjob.errors import ClusterError
from trainjob.status.diagnostics import event_time
from trainjob.status.nested_fields import get_int, get_str
from trainjob.status.pods import ContainerFailure, claims_of, container_statuses, trim_scheduler_message

if TYPE_CHECKING:
    from trainjob.client.cluster import Cluster

_LOG_LINES, _HEAD_LINES = 20, 2000
_EVENTS = 8
# The reason of events about restarts of a failed container; the failure itself is reported with its exit code.
_IGNORED_REASONS = frozenset({"BackOff"})


def list_warning_lines(
    cluster: Cluster, namespace: str, trainjob: str, pods: Iterable[Mapping[str, Any]], *, since: str = ""
) -> list[str]:
    """Return the newest Warning events about a TrainJob and its objects, oldest first.

    These objects are its JobSet, its Jobs, its pods and the claims that the pods mount. Each event is one line,
    `REASON: MESSAGE`. Events with the reason BackOff and repeated lines are left out, and at most 8 lines remain.

    The list is empty if the events can't be read, because a diagnosis must not fail the job that it is about.

    Args:
        cluster: cluster of the TrainJob.
        namespace: namespace of the TrainJob.
        trainjob: name of the TrainJob.
        pods: known pods of the TrainJob.
        since: RFC 3339 time of the TrainJob's creation. Events created before it are left out, because events outlive
            an earlier TrainJob of the same name.
    """
    try:
        found = list_warning_events(cluster, namespace, trainjob, pods)
    except ClusterError:
        return []
    current = [event for event in found if get_str(event, "metadata", "creationTimestamp") >= since]
    relevant = [event for event in current if get_str(event, "reason") not in _IGNORED_REASONS]
    lines = [f"{get_str(event, 'reason')}: {trim_scheduler_message(get_str(event, 'message'))}" for event in relevant]
    return list(dict.fromkeys(lines))[-_EVENTS:]


def list_warning_events(
    cluster: Cluster, namespace: str, trainjob: str, pods: Iterable[Mapping[str, Any]], *, cached: bool = False
) -> list[dict[str, Any]]:
    """Return all Warning events about a TrainJob and its objects, oldest first.

    These objects are its JobSet, its Jobs, its pods and the claims that the pods mount.

    Args:
        cluster: cluster of the TrainJob.
        namespace: namespace of the TrainJob.
        trainjob: name of the TrainJob.
        pods: known pods of the TrainJob.
        cached: read the events from a cache that all callers share; they are up to 15 s old.

    Raises:
        ClusterError: the events can't be read.
    """
    claims = {name for pod in pods for name in claims_of(pod)}
    if cached:
        found = cluster.diagnostics.get_warnings(namespace)
        events = [event for name in (trainjob, *sorted(claims)) for event in found.get(name, ())]
    else:
        events = cluster.list_events(namespace, "type=Warning")
    return sorted((event for event in events if _is_about_trainjob(event, trainjob, claims)), key=event_time)


def _is_about_trainjob(event: Mapping[str, Any], trainjob: str, claims: set[str]) -> bool:
    kind, name = get_str(event, "involvedObject", "kind"), get_str(event, "involvedObject", "name")
    if kind == "PersistentVolumeClaim":
        return name in claims
    # Jobs and pods are named `<trainjob>-<replicated job>-<index>...`; events of deleted pods are included.
    return name == trainjob or (name.startswith(f"{trainjob}-") and kind in ("Job", "JobSet", "Pod"))


def read_failure_log_tail(cluster: Cluster, namespace: str, failure: ContainerFailure) -> list[str]:
    """Return the last log lines of a failed container, even if it was restarted.

    The kubelet may restart the container at any time after its failure was observed. The log of the failed run is then
    the previous log. After another restart, it no longer exists.

    Returns:
        At most 20 lines, oldest first; empty if the log no longer exists or can't be read.
    """
    restarts = 1 if failure.restarted else 0  # since the failure
    with contextlib.suppress(ClusterError):
        while restarts <= 1:
            lines = _read_tail(cluster, namespace, failure.pod, failure.container, previous=restarts == 1)
            # The API does not say which run's log it has sent, so the restarts are counted after reading.
            counted = _count_restarts_since(cluster, namespace, failure)
            if counted in (None, restarts):
                return lines
            restarts = counted
    return []


def _count_restarts_since(cluster: Cluster, namespace: str, failure: ContainerFailure) -> int | None:
    """Return the restarts of a container since its failure; None without its pod."""
    pod = cluster.find_pod(failure.pod, namespace)
    for status in container_statuses(pod or {}):
        if get_str(status, "name") == failure.container:
            return get_int(status, "restartCount") + 1 - failure.count
    return None


def read_log_tail(cluster: Cluster, namespace: str, pod: Mapping[str, Any], container: str) -> list[str]:
    """Return the last log lines of a container in any state.

    Returns:
        At most 20 lines, oldest first; empty if they can't be read.
    """
    with contextlib.suppress(ClusterError):
        return _read_tail(cluster, namespace, get_str(pod, "metadata", "name"), container, previous=False)
    return []


def read_last_lines(
    cluster: Cluster, namespace: str, pod: Mapping[str, Any], container: str, count: int
) -> Iterator[LogLine]:
    """Yield the last lines of a container's log, and the frames of progress bars among them.

    Nothing is yielded if they can't be read.
    """
    with contextlib.suppress(ClusterError):
        yield from _read_lines(cluster, namespace, get_str(pod, "metadata", "name"), container, tail=count)


def find_log_line(
    cluster: Cluster, namespace: str, pod: Mapping[str, Any], container: str, pattern: re.Pattern[str]
) -> str:
    """Return the first line of a container's log that matches a pattern.

    Returns:
        The line, if it is among the first 2000; empty if there is none, or the log can't be read.
    """
    with contextlib.suppress(ClusterError):
        for read, line in enumerate(_read_lines(cluster, namespace, get_str(pod, "metadata", "name"), container)):
            if pattern.match(line.text):
                return line.text
            if read >= _HEAD_LINES:
                break
    return ""


def _read_tail(cluster: Cluster, namespace: str, pod: str, container: str, *, previous: bool) -> list[str]:
    tail = Tail(_LOG_LINES)
    for line in _read_lines(cluster, namespace, pod, container, previous=previous, tail=_LOG_LINES):
        tail.extend([line])
    return list(tail.lines)


def _read_lines(cluster: Cluster, namespace: str, pod: str, container: str, **options: Any) -> Iterator[LogLine]:
    stream, reader = cluster.open_log(pod, namespace, container, read_seconds=10.0, **options), LogReader()
    try:
        with contextlib.suppress(ClusterError):  # lines that arrived before the error are kept
            for lines in reader.read(stream):
                yield from lines
    finally:
        stream.close()
    yield from reader.flush()
