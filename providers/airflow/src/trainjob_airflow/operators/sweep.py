"""Deleting the TrainJobs that nobody needs any more."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from trainjob_airflow.asking import has_ended
from trainjob_airflow.failing import failing_for_good
from trainjob_airflow.hooks.trainjob import DEFAULT_CONNECTION, TrainJobHook

if TYPE_CHECKING:
    from airflow.sdk import Context

_AT_WORK_FOR = timedelta(minutes=5)


class TrainJobSweepOperator(BaseOperator):
    """Deletes TrainJobs whose time to live is over, and those at work whose task has ended.

    A DAG that runs it every quarter of an hour ends what Airflow leaves behind: a task that was marked while no
    triggerer ran, a worker that was killed before it could delete. Of TrainJobs at work it looks only at those of this
    Airflow's tasks; `on_kill_action` decides what becomes of them. A model that nobody has exported stays. The result
    lists what was done: `job`, `namespace`, `uid`, `done` and `reason` each.
    """

    template_fields: Sequence[str] = ("namespace",)
    ui_color = "#e8eefc"

    def __init__(
        self,
        *,
        finished_for: timedelta | None = None,
        at_work_for: timedelta = _AT_WORK_FOR,
        unexported: bool = False,
        dry_run: bool = False,
        namespace: str = "",
        kubernetes_conn_id: str | None = DEFAULT_CONNECTION,
        **task_arguments: Any,
    ) -> None:
        """See the class.

        Args:
            finished_for: how long those stay that have ended and have no time to live of their own; None for ever.
            at_work_for: how old one at work is at least before it goes with its task.
            unexported: delete those, too, whose model is on a claim that goes with them.
            dry_run: only tell what would be done.
            namespace: where; empty means the connection's.
            kubernetes_conn_id: a connection of type `trainjob` or `kubernetes`; None finds the cluster as kubectl does.
            **task_arguments: those of every operator.
        """
        super().__init__(**task_arguments)
        self.finished_for, self.at_work_for = finished_for, at_work_for
        self.unexported, self.only_tell = unexported, dry_run
        self.namespace, self.kubernetes_conn_id = namespace, kubernetes_conn_id

    @failing_for_good()
    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Sweep once.

        Raises:
            AirflowFailException: the connection or its rights.
            ClusterError: the cluster can't be asked; a retry goes on.
        """
        from trainjob.retention import sweep

        done = sweep(
            TrainJobHook(self.kubernetes_conn_id).get_conn(),
            namespace=self.namespace,
            finished_for=self.finished_for,
            at_work_for=self.at_work_for,
            is_over=partial(has_ended, context),
            unexported=self.unexported,
            dry_run=self.only_tell,
            tell=lambda one: self.log.info("%s%s", "dry run: " if self.only_tell else "", one),
        )
        return [
            {
                "job": one.reference.name,
                "namespace": one.reference.namespace,
                "uid": one.reference.uid,
                "done": one.done,
                "reason": one.reason,
            }
            for one in done
        ]
