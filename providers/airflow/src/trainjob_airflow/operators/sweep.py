"""Deleting the TrainJobs that nobody needs any more."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from trainjob_airflow.failing import failing_for_good
from trainjob_airflow.hooks.trainjob import DEFAULT_CONNECTION, TrainJobHook
from trainjob_airflow.run_key import this_airflow
from trainjob_airflow.termination import ENDED

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainjob.lifecycle import RunKey

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
            is_over=partial(_has_ended, context),
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


def _has_ended(context: Context, key: RunKey) -> bool | None:
    """Return whether the task instance of a run key has ended or was deleted, as the task execution API says.

    Args:
        context: context of the task that runs the sweep.
        key: the run key of a TrainJob.

    Returns:
        None if it is not known: it is not a task instance of this Airflow, its DAG is unknown, or Airflow does not
        answer.
    """
    if key.engine != "airflow" or key.origin != this_airflow():
        return None
    ti: Any = context["ti"]
    index = int(key.map_index) if key.map_index.isdigit() else None
    try:
        found = ti.get_task_states(dag_id=key.workflow, task_ids=[key.task], run_ids=[key.run], map_index=index)
        states = found.get(key.run, {})
        name = key.task if index is None else f"{key.task}_{index}"
        if name in states:
            # All others, such as deferred or up_for_retry, are at work; so is none, which is about to be scheduled.
            return states[name] in ENDED
        # Gone with its run, which somebody deleted. Of a DAG unknown here it may be another Airflow's.
        ti.get_dag(key.workflow)
    except Exception:  # noqa: BLE001 - whatever the reason, it is not known
        return None
    return True
