"""Pausing, resuming and deleting a TrainJob that another task, DAG or person made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from trainjob_airflow.failing import failing_for_good
from trainjob_airflow.hooks.trainjob import DEFAULT_CONNECTION, TrainJobHook

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainjob.client import Cluster


class _NamedTrainJobOperator(BaseOperator):
    """Does something to the TrainJob of a name."""

    template_fields: Sequence[str] = ("name", "namespace")
    ui_color = "#e8eefc"

    def __init__(
        self,
        *,
        name: str,
        namespace: str = "",
        kubernetes_conn_id: str | None = DEFAULT_CONNECTION,
        **task_arguments: Any,
    ) -> None:
        """See the class.

        Args:
            name: the TrainJob's name, such as `{{ ti.xcom_pull('train')['job'] }}`.
            namespace: its namespace; empty means the connection's.
            kubernetes_conn_id: a connection of type `trainjob` or `kubernetes`; None finds the cluster as kubectl does.
            **task_arguments: those of every operator.
        """
        super().__init__(**task_arguments)
        self.name, self.namespace, self.kubernetes_conn_id = name, namespace, kubernetes_conn_id

    def _cluster(self) -> Cluster:
        cluster = TrainJobHook(self.kubernetes_conn_id).get_conn()
        self.namespace = self.namespace or cluster.namespace
        return cluster

    def _suspend(self, *, suspended: bool) -> bool:
        from trainjob.lifecycle import set_suspended

        cluster, word = self._cluster(), "suspended" if suspended else "resumed"
        changed = set_suspended(cluster, self.name, self.namespace, suspended=suspended)
        self.log.info(
            "TrainJob %s/%s %s", self.namespace, self.name, f"was {word}" if changed else f"did not need to be {word}"
        )
        return changed


class SuspendTrainJobOperator(_NamedTrainJobOperator):
    """Suspends a TrainJob: its pods go and it keeps its claims. The result says whether anything was to be done.

    The training starts from the beginning when it is resumed. One in a Kueue queue is refused: the queue decides.
    """

    @failing_for_good()
    def execute(self, context: Context) -> bool:  # noqa: ARG002 - Airflow's signature
        """Suspend it."""
        return self._suspend(suspended=True)


class ResumeTrainJobOperator(_NamedTrainJobOperator):
    """Lets a suspended TrainJob go on. The result says whether anything was to be done."""

    @failing_for_good()
    def execute(self, context: Context) -> bool:  # noqa: ARG002 - Airflow's signature
        """Resume it."""
        return self._suspend(suspended=False)


class DeleteTrainJobOperator(_NamedTrainJobOperator):
    """Deletes a TrainJob with its pods and the claims that it made. The result says whether there was one."""

    @failing_for_good()
    def execute(self, context: Context) -> bool:  # noqa: ARG002 - Airflow's signature
        """Delete it; one that is gone is no error."""
        cluster = self._cluster()
        job = cluster.get_trainjob(self.name, self.namespace)
        deleted = job is not None and cluster.delete_trainjob(self.name, self.namespace, job["metadata"]["uid"])
        self.log.info(
            "TrainJob %s/%s %s", self.namespace, self.name, "was deleted" if deleted else "was not there any more"
        )
        return deleted
