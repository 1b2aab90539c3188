"""Connections and namespaces whose TrainJobs the page shows and the sweep considers.

They come from Airflow's configuration. A DAG file imports this module, so it imports no Kubernetes client.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from trainjob.errors import (
    ClusterUnreachable,
    InvalidResponse,
    NoClusterConfigured,
    NotFound,
    PermissionDenied,
    ServerUnavailable,
    Unauthorized,
)
from trainjob_airflow.hooks.trainjob import DEFAULT_CONNECTION, TrainJobHook
from trainjob_airflow.version_compat import conf

if TYPE_CHECKING:
    from trainjob.client import Cluster, Connection

_REASONS: Mapping[type[Exception], str] = {
    ClusterUnreachable: "its API server does not respond",
    InvalidResponse: "its responses lack the requested content; a proxy may respond in its place",
    ServerUnavailable: "its API server is unavailable at present",
    Unauthorized: "its API server does not accept the connection's credentials",
    PermissionDenied: "the connection's credentials lack permissions; the Role of manifests/airflow grants them",
    NotFound: "Kubeflow Trainer is not installed in it",
    NoClusterConfigured: "the connection does not exist, or it names no usable cluster",
}


@dataclass(frozen=True)
class JobSource:
    """A namespace of a cluster whose TrainJobs the page shows and the sweep considers.

    Attributes:
        connection: ID of an Airflow connection.
        namespace: name of the namespace; empty means the connection's.
    """

    connection: str
    namespace: str = ""

    def __str__(self) -> str:
        return self.connection + (f"/{self.namespace}" if self.namespace else "")

    def connect(self) -> tuple[Cluster, str]:
        """Return the cluster's client and the namespace.

        The connection is read each time, so that a change takes effect at once.

        Raises:
            NoClusterConfigured: the connection names no usable cluster.
        """
        cluster = _cached_cluster(TrainJobHook(self.connection).read_connection())
        return cluster, self.namespace or cluster.namespace


def list_job_sources() -> list[JobSource]:
    """Return the job sources in the configuration option `[trainjob] page_connections`.

    An example of its value is `kubernetes_default, gpu_cluster/team-a`.
    """
    named = conf.get("trainjob", "page_connections", fallback=DEFAULT_CONNECTION) or DEFAULT_CONNECTION
    parts = [entry.strip().partition("/") for entry in named.split(",") if entry.strip()]
    return list(dict.fromkeys(JobSource(connection, namespace) for connection, _, namespace in parts))


def describe_problem(source: JobSource, error: Exception) -> str:
    """Return the reason why a job source cannot be shown, without addresses.

    Every user of the page may read the sentence. The full error is written to the log.
    """
    logging.getLogger(__name__).warning(
        "The page TrainJobs can't show the TrainJobs of connection %s: %s", source, error
    )
    why = _REASONS.get(type(error), "see the log of Airflow's API server for the reason")
    return f"The cluster of connection {source} can't be queried: {why}."


@lru_cache(maxsize=32)
def _cached_cluster(connection: Connection) -> Cluster:
    """Return the client for a connection; each connection has one.

    The client does not wait for a cluster that is down. The next query tries again.
    """
    from trainjob.client import Cluster

    return Cluster(connection, retry_seconds=0.0)
