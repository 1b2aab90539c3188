"""Hook that creates a cluster client from a connection of type `trainjob` or `kubernetes`."""

from __future__ import annotations

import asyncio
import json
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseHook

from trainjob.errors import InvalidSpec, NoClusterConfigured, Problem, TrainJobError
from trainjob_airflow.version_compat import AirflowNotFoundException, run_request

if TYPE_CHECKING:
    from trainjob.client import Cluster, Connection

DEFAULT_CONNECTION = "kubernetes_default"
# Earlier versions of the Kubernetes provider stored the form's fields with this prefix; old connections still have it.
_LEGACY_PREFIX = "extra__kubernetes__"
_HookArguments = tuple[str | None, str | None, bool | None]
# Reads of connections that have not ended, by the hook's arguments.
_reads_by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[_HookArguments, asyncio.Task[Cluster]]] = (
    weakref.WeakKeyDictionary()
)


class TrainJobHook(BaseHook):
    """Read an Airflow connection and create a client for the cluster that it names.

    The connection's type is `trainjob`, whose form also has the addresses of links, or the Kubernetes provider's
    `kubernetes`. The fields `kube_config_path`, `kube_config`, `in_cluster`, `cluster_context`, `namespace` and
    `disable_verify_ssl` have the same meaning in both, and `kube_config` is JSON or YAML. Without a connection, the
    hook finds the cluster as kubectl does.
    """

    conn_name_attr: ClassVar[str] = "kubernetes_conn_id"
    default_conn_name: ClassVar[str] = DEFAULT_CONNECTION
    conn_type: ClassVar[str] = "trainjob"
    hook_name: ClassVar[str] = "Kubeflow Trainer"

    def __init__(
        self,
        kubernetes_conn_id: str | None = DEFAULT_CONNECTION,
        cluster_context: str | None = None,
        in_cluster: bool | None = None,
    ) -> None:
        """Create the hook without reading the connection.

        Args:
            kubernetes_conn_id: ID of the connection; None, or empty as a rendered template, for no connection.
            cluster_context: context of the kubeconfig; None or empty means the connection's.
            in_cluster: whether to use the service account of the pod; None means the connection's setting. True ignores
                the connection's kubeconfig.
        """
        super().__init__()
        self.kubernetes_conn_id, self.cluster_context = kubernetes_conn_id or None, cluster_context or None
        self.in_cluster = in_cluster

    @classmethod
    def of(cls, task: Any) -> TrainJobHook:
        """Return the hook for the arguments of an operator, sensor, trigger or workspace."""
        return cls(task.kubernetes_conn_id, task.cluster_context, task.in_cluster)

    def get_conn(self) -> Cluster:
        """Return the client for this connection's cluster, shared in the whole process.

        Raises:
            NoClusterConfigured: the connection names no usable cluster, or Airflow has no connection of this ID. In the
                second case the error is retryable, because the connection may just be replaced.
            InvalidSpec: the connection names several ways to reach a cluster.
        """
        from trainjob.client import shared_cluster

        extra = self._read_extra()
        try:
            return shared_cluster(self._connection(extra or {}))
        except NoClusterConfigured as error:
            error.retryable = extra is None and self.kubernetes_conn_id is not None
            raise

    def test_connection(self) -> tuple[bool, str]:
        """Return whether the connection works, and a message for the user.

        It works if Kubeflow Trainer is installed and the connection's credentials may list TrainJobs in its namespace.

        Returns:
            True with the server and the number of TrainJobs in the namespace, or False with the error in one line.
        """
        from trainjob.client import Cluster

        try:
            cluster = Cluster(self.read_connection(), retry_seconds=0.0)
            try:
                found = len(cluster.list_trainjobs(cluster.namespace, selector=""))
            finally:
                cluster.close()
        except TrainJobError as error:
            return False, " ".join(str(error).split())
        return True, f"{cluster.server} has Kubeflow Trainer, with {found} TrainJobs in namespace {cluster.namespace}"

    async def get_conn_async(self) -> Cluster:
        """Return the same as [get_conn][], without blocking the event loop; for triggers.

        Calls for the same connection share a read that has not ended yet, because a triggerer may start thousands of
        triggers at once. Later calls read the connection again, because its credentials may have changed.
        """
        reads = _reads_by_loop.setdefault(asyncio.get_running_loop(), {})
        arguments = (self.kubernetes_conn_id, self.cluster_context, self.in_cluster)
        if arguments not in reads:
            read = asyncio.create_task(self._open_cluster())
            reads[arguments] = read
            read.add_done_callback(lambda _: reads.pop(arguments))
        return await asyncio.shield(reads[arguments])  # the others still need it after a cancellation

    async def _open_cluster(self) -> Cluster:
        # Airflow's own asynchronous read blocks the event loop while it masks secrets, before Airflow 3.3.2.
        return await run_request(self.get_conn)

    def read_connection(self) -> Connection:
        """Return the connection's settings in the form that the core takes; for workers.

        Raises:
            NoClusterConfigured: Airflow has no connection of this ID.
            InvalidSpec: the connection names several ways to reach a cluster.
        """
        return self._connection(self._read_extra() or {})

    def _connection(self, extra: Mapping[str, Any]) -> Connection:
        """Return the settings of an extra, with the hook's own in place of the extra's.

        Raises:
            InvalidSpec: a context is given together with the pod's service account, or the extra names several ways to
                reach a cluster.
        """
        given = {"cluster_context": self.cluster_context, "in_cluster": self.in_cluster}
        own = {name: value for name, value in given.items() if value is not None}
        ignored = ("kube_config", "kube_config_path", "cluster_context") if self.in_cluster else ()
        replaced = {*own, *ignored}
        kept = {name: value for name, value in extra.items() if name.removeprefix(_LEGACY_PREFIX) not in replaced}
        connection = connection_from_extra({**kept, **own})
        if self.cluster_context and connection.in_cluster:
            rule = "in_cluster is set, and the pod's service account has no contexts; give in_cluster=False"
            raise InvalidSpec(Problem("cluster_context", repr(self.cluster_context), rule))
        return connection

    def _read_extra(self) -> Mapping[str, Any] | None:
        """Return the extra of the connection; None without a connection.

        Only the default connection may be missing, as with the Kubernetes provider's own hook.

        Raises:
            NoClusterConfigured: Airflow has no connection of this ID; a retry may find it.
        """
        if self.kubernetes_conn_id is None:
            return None
        try:
            extra: Mapping[str, Any] = self.get_connection(self.kubernetes_conn_id).extra_dejson
        except AirflowNotFoundException:
            if self.kubernetes_conn_id == DEFAULT_CONNECTION:
                return None
            error = NoClusterConfigured(
                f"Airflow has no connection {self.kubernetes_conn_id!r}",
                hint="add a connection with this ID, of type trainjob or kubernetes, or use another ID",
            )
            error.retryable = True
            raise error from None
        return extra


def connection_from_extra(extra: Mapping[str, Any]) -> Connection:
    """Return the core's connection settings for the extra of a `kubernetes` connection.

    Raises:
        InvalidSpec: the extra names several ways to reach a cluster.
    """
    from trainjob.client import Connection

    def get_field(name: str) -> Any:
        return extra.get(name) or extra.get(_LEGACY_PREFIX + name) or ""

    kubeconfig = get_field("kube_config")
    return Connection(
        kubeconfig=get_field("kube_config_path"),
        kubeconfig_text=json.dumps(kubeconfig) if isinstance(kubeconfig, dict) else kubeconfig,
        in_cluster=_is_true(get_field("in_cluster")),
        context=get_field("cluster_context"),
        namespace=get_field("namespace"),
        verify_tls=not _is_true(get_field("disable_verify_ssl")),
    )


def _is_true(value: Any) -> bool:
    return value is True or str(value).lower() in ("true", "1", "yes")
