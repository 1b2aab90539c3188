"""Reader of everything that a container has logged until now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from trainjob.client.backoff import retry
from trainjob.client.log_lines import LogLine, LogReader
from trainjob.status.nested_fields import get_str
from trainjob.status.pods import container_statuses, rank_of, step_of

if TYPE_CHECKING:
    from trainjob.client.cluster import Cluster

_RETRY_SECONDS = 60.0  # of retries while the API server is unavailable


def read_log(
    cluster: Cluster, pod: Mapping[str, Any], container: str, emit: Callable[[LogLine], None], *, previous: bool = False
) -> None:
    """Emit every line that a container has written until now.

    If a stream breaks, the next one resumes at its position.

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
    multiple_containers = len(container_statuses(pod)) > 1
    reader = LogReader(f"{step_of(pod)}-{rank_of(pod)}" + (f"/{container}" if multiple_containers else ""))
    name, namespace = get_str(pod, "metadata", "name"), get_str(pod, "metadata", "namespace")

    def read_stream() -> None:
        stream = cluster.open_log(name, namespace, container, previous=previous, since=reader.since)
        try:
            for lines in reader.read(stream):
                for line in lines:
                    emit(line)
        finally:
            stream.close()

    retry(read_stream, timeout=_RETRY_SECONDS)
    for line in reader.flush():
        emit(line)
