"""Connections and namespaces whose TrainJobs the page shows and the sweep considers.

They come from Airflow's configuration. A DAG file imports this module, so it imports no Kubernetes client.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from trainjob.errors import (
    ClusterUnreachable,
    CredentialPluginRefused,
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
    CredentialPluginRefused: "its kubeconfig runs a credential plugin, and page_credential_plugins is not set",
    NoClusterConfigured: "the connection does not exist, or it names no usable cluster",
}
AWAY_ERRORS = (ClusterUnreachable, InvalidResponse, ServerUnavailable)
"""Errors of a cluster that may respond again, so that its TrainJobs are shown as they were."""


@dataclass(frozen=True)
class JobSource:
    """A namespace of a cluster whose TrainJobs the page shows and the sweep considers.

    Attributes:
        connection: ID of an Airflow connection.
        namespace: name of the namespace; empty means the connection's.
        team: the only team whose DAGs have TrainJobs there, and whose users see problems of it; empty means all.
    """

    connection: str
    namespace: str = ""
    team: str = ""

    def __str__(self) -> str:
        return self.connection + (f"/{self.namespace}" if self.namespace else "")

    def connect(self) -> tuple[Cluster, str]:
        """Return the cluster's client and the namespace.

        The connection is read each time, so that a change takes effect at once. A credential plugin runs only with the
        configuration option `[trainjob] page_credential_plugins`, because it would run in Airflow's API server.

        Raises:
            NoClusterConfigured: the connection names no usable cluster.
        """
        may_run_plugins = conf.getboolean("trainjob", "page_credential_plugins", fallback=False)
        connection = replace(TrainJobHook(self.connection).read_connection(), run_plugins=may_run_plugins)
        cluster = _cached_cluster(connection)
        return cluster, self.namespace or cluster.namespace


def list_job_sources() -> list[JobSource]:
    """Return the job sources in the configuration option `[trainjob] page_connections`.

    An example of its value is `kubernetes_default, blue:gpu_cluster/team-blue`.
    """
    named = conf.get("trainjob", "page_connections", fallback=DEFAULT_CONNECTION) or DEFAULT_CONNECTION
    return list(dict.fromkeys(_parse_source(entry.strip()) for entry in named.split(",") if entry.strip()))


def _parse_source(entry: str) -> JobSource:
    team, _, place = entry.rpartition(":")
    connection, _, namespace = place.partition("/")
    return JobSource(connection, namespace, team)


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
