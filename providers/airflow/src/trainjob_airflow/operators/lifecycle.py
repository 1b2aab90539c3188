"""Operators that suspend, resume or delete a TrainJob that this task did not create."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trainjob_airflow.hooks.trainjob import DEFAULT_CONNECTION, TrainJobHook
from trainjob_airflow.operators.argument_checks import CLUSTER_FIELDS, check_cluster_arguments
from trainjob_airflow.operators.templates import TemplatedOperator
from trainjob_airflow.task_errors import convert_permanent_errors

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainjob.client import Cluster


class _NamedTrainJobOperator(TemplatedOperator):
    """Base class of the operators that change a TrainJob by its name."""

    template_fields: Sequence[str] = ("name", *CLUSTER_FIELDS)
    ui_color = "#e8eefc"

    def __init__(
        self,
        *,
        name: str,
        namespace: str = "",
        kubernetes_conn_id: str | None = DEFAULT_CONNECTION,
        cluster_context: str | None = None,
        in_cluster: bool | None = None,
        **task_arguments: Any,
    ) -> None:
        """Create the operator for the TrainJob of this name.

        Args:
            name: name of the TrainJob, such as `{{ ti.xcom_pull('train')['job'] }}`.
            namespace: namespace of the TrainJob; empty means the connection's.
            kubernetes_conn_id: ID of a connection of type `trainjob` or `kubernetes`; None finds the cluster as kubectl
                does.
            cluster_context: context of the kubeconfig, in place of the connection's.
            in_cluster: whether to use the service account of the worker's or triggerer's pod, in place of the
                connection's setting. True ignores the connection's kubeconfig.
            **task_arguments: arguments of `BaseOperator`.
        """
        super().__init__(**task_arguments)
        self.name, self.namespace, self.kubernetes_conn_id = name, namespace, kubernetes_conn_id
        self.cluster_context, self.in_cluster = cluster_context, in_cluster
        check_cluster_arguments(self, ("name", "namespace"))

    def _cluster(self) -> Cluster:
        cluster = TrainJobHook.of(self).get_conn()
        self.namespace = self.namespace or cluster.namespace
        return cluster

    def _set_suspended(self, *, suspended: bool) -> bool:
        from trainjob.lifecycle import set_suspended

        cluster, word = self._cluster(), "suspended" if suspended else "resumed"
        changed = set_suspended(cluster, self.name, self.namespace, suspended=suspended)
        self.log.info(
            "TrainJob %s/%s %s", self.namespace, self.name, f"was {word}" if changed else f"did not need to be {word}"
        )
        return changed


class SuspendTrainJobOperator(_NamedTrainJobOperator):
    """Suspend a TrainJob: its pods are deleted, and its claims are retained.

    A training starts from the beginning when it is resumed. A TrainJob in a Kueue queue is refused, because the queue
    decides when it runs. The XCom is True if the TrainJob was suspended, and False if it was suspended already or has
    ended.
    """

    @convert_permanent_errors()
    def execute(self, context: Context) -> bool:  # noqa: ARG002 - Airflow's signature
        """Suspend the TrainJob, and return whether it had to be suspended."""
        return self._set_suspended(suspended=True)


class ResumeTrainJobOperator(_NamedTrainJobOperator):
    """Resume a suspended TrainJob.

    The XCom is True if the TrainJob was resumed, and False if it was not suspended or has ended.
    """

    @convert_permanent_errors()
    def execute(self, context: Context) -> bool:  # noqa: ARG002 - Airflow's signature
        """Resume the TrainJob, and return whether it had to be resumed."""
        return self._set_suspended(suspended=False)


class DeleteTrainJobOperator(_NamedTrainJobOperator):
    """Delete a TrainJob with its pods and the claims that it created.

    The XCom is True if the TrainJob was deleted, and False if it did not exist, which is not an error.
    """

    @convert_permanent_errors()
    def execute(self, context: Context) -> bool:  # noqa: ARG002 - Airflow's signature
        """Delete the TrainJob, and return whether it existed."""
        cluster = self._cluster()
        job = cluster.get_trainjob(self.name, self.namespace)
        deleted = job is not None and cluster.delete_trainjob(self.name, self.namespace, job["metadata"]["uid"])
        self.log.info(
            "TrainJob %s/%s %s", self.namespace, self.name, "was deleted" if deleted else "did not exist any more"
        )
        return deleted
