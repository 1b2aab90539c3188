"""Reader of everything that a container has logged until now."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from trainjob.client.backoff import Backoff, retry
from trainjob.client.log_end import LastLine
from trainjob.client.log_lines import LoggedContainer, LogLine
from trainjob.client.log_reader import LogReader, read_last_line
from trainjob.client.log_resume import OtherLog
from trainjob.status.nested_fields import get_mapping, get_str
from trainjob.status.pods import container_statuses

if TYPE_CHECKING:
    from trainjob.client.cluster import Cluster

_RETRY_SECONDS = 60.0  # of retries while the API server is unavailable
_MAX_UNPRODUCTIVE_READS = 3  # one after the other and without a new byte


def read_log(
    cluster: Cluster, pod: Mapping[str, Any], container: str, emit: Callable[[LogLine], None], *, previous: bool = False
) -> None:
    """Emit every line that a container has written until now.

    If a stream breaks, the next one resumes where it ended. If the end of the log can't be reached, the last line is a
    [LogNotice][].

    Args:
        cluster: cluster of the pod.
        pod: the pod, as the API returns it.
        container: name of the container.
        emit: called with each line, on this thread.
        previous: read the log of the run before the last restart.

    Raises:
        AdmissionRefused: the log does not exist, or not yet.
        NotFound: the pod is gone, and its log with it.
        ClusterError: the request failed.
    """
    log = LoggedContainer.of(pod, container)
    reader, has_ended = LogReader(log), previous or _has_ended(pod, container)

    def read_stream() -> None:
        stream = cluster.open_log(log.pod, log.namespace, container, previous=previous, since=reader.since)
        try:
            for lines in reader.read(stream):
                for line in lines:
                    emit(line)
        finally:
            stream.close()

    retry(read_stream, timeout=_RETRY_SECONDS)
    last_line = retry(lambda: fetch_last_line(cluster, log, previous=previous), timeout=_RETRY_SECONDS)
    missing = ""
    # A running container may have written more in the meantime.
    if has_ended or not reader.has_read_past(last_line):
        missing = _read_to_end(reader, last_line, read_stream)
    for line in reader.flush():
        emit(line)
    if missing:
        emit(log.missing(missing, after=reader.newest, previous=previous))


def _read_to_end(reader: LogReader, last_line: LastLine, read_stream: Callable[[], None]) -> str:
    """Read streams until the last line has arrived.

    Returns:
        Why output is missing; empty if none is.
    """
    backoff, unproductive_reads, nothing_new = Backoff(), 0, False
    while not reader.has_read_to(last_line, nothing_new=nothing_new):
        if unproductive_reads == _MAX_UNPRODUCTIVE_READS:
            return "its last line is not the one that was received last, or its file was rotated"
        time.sleep(backoff.next())
        extent = reader.extent
        try:
            retry(read_stream, timeout=_RETRY_SECONDS)
        except OtherLog:
            return "the container was restarted, or its file was rotated, before the log was read to the end"
        nothing_new = reader.extent == extent
        unproductive_reads = unproductive_reads + 1 if nothing_new else 0
    return ""


def fetch_last_line(cluster: Cluster, log: LoggedContainer, *, previous: bool) -> LastLine:
    """Return the last line of a container's log.

    Args:
        cluster: cluster of the pod.
        log: the container.
        previous: return the last line of the run before the last restart.

    Raises:
        ClusterError: the log does not exist, or the request failed.
    """
    stream = cluster.open_log(log.pod, log.namespace, log.container, previous=previous, tail=1)
    try:
        return read_last_line(stream)
    finally:
        stream.close()


def _has_ended(pod: Mapping[str, Any], container: str) -> bool:
    states = [get_mapping(one, "state") for one in container_statuses(pod) if get_str(one, "name") == container]
    return any("terminated" in state for state in states)
