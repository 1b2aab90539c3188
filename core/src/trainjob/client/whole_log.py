"""Reading a container's log as far as it goes now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from trainjob.client.backoff import persist
from trainjob.client.log_lines import LogLine, Transcript
from trainjob.status.pods import container_statuses, rank_of, step_of
from trainjob.status.reading import text

if TYPE_CHECKING:
    from trainjob.client.cluster import Cluster

_PATIENCE = 60.0  # seconds to keep asking while the cluster can't answer


def read_log(
    cluster: Cluster, pod: Mapping[str, Any], container: str, emit: Callable[[LogLine], None], *, previous: bool = False
) -> None:
    """Hand out every line that a container has written until now; a stream that breaks is read on where it was.

    Args:
        cluster: where.
        pod: as the API gives it.
        container: its name.
        emit: takes each line, on this thread.
        previous: of its run before the last restart.

    Raises:
        AdmissionRefused: there is no such log, or not yet.
        NotFound: the pod is gone, and its log with it.
        ClusterError: the cluster can't be asked.
    """
    several = len(container_statuses(pod)) > 1
    transcript = Transcript(f"{step_of(pod)}-{rank_of(pod)}" + (f"/{container}" if several else ""))
    name, namespace = text(pod, "metadata", "name"), text(pod, "metadata", "namespace")

    def read_on() -> None:
        stream = cluster.open_log(name, namespace, container, previous=previous, since=transcript.since)
        try:
            for lines in transcript.read(stream):
                for line in lines:
                    emit(line)
        finally:
            stream.close()

    persist(read_on, patience=_PATIENCE)
    for line in transcript.rest():
        emit(line)
