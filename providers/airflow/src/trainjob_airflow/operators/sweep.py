"""Operator that deletes TrainJobs which are no longer needed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from trainjob_airflow.hooks.trainjob import DEFAULT_CONNECTION, TrainJobHook
from trainjob_airflow.operators.argument_checks import CLUSTER_FIELDS, check_cluster_arguments
from trainjob_airflow.operators.templates import TemplatedOperator
from trainjob_airflow.run_key import get_task_instance
from trainjob_airflow.task_errors import convert_permanent_errors
from trainjob_airflow.termination import ENDED_STATES

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainjob.lifecycle import RunKey

_DEFAULT_ACTIVE_FOR = timedelta(minutes=5)


class TrainJobSweepOperator(TemplatedOperator):
    """Delete TrainJobs whose time to live has expired, and active ones whose task has ended.

    Schedule it in a DAG of its own, for example every 15 minutes. It then ends TrainJobs that Airflow leaves behind: a
    user marked the task while no triggerer ran, or the worker was killed before it could delete the TrainJob.

    Of the active TrainJobs, the sweep considers only those of this Airflow's tasks, and it applies their
    `on_kill`. It retains a model that has not been exported. The XCom lists the results, each with `job`,
    `namespace`, `uid`, `done` and `reason`.
    """

    template_fields: Sequence[str] = CLUSTER_FIELDS
    ui_color = "#e8eefc"

    def __init__(
        self,
        *,
        finished_for: timedelta | None = None,
        active_for: timedelta = _DEFAULT_ACTIVE_FOR,
        unexported: bool = False,
        dry_run: bool = False,
        namespace: str = "",
        kubernetes_conn_id: str | None = DEFAULT_CONNECTION,
        cluster_context: str | None = None,
        in_cluster: bool | None = None,
        **task_arguments: Any,
    ) -> None:
        """Create the operator.

        Args:
            finished_for: how long finished TrainJobs without a time to live of their own are retained; None means for
                ever.
            active_for: minimum age of an active TrainJob before it is ended with its task, since its creation or
                adoption.
            unexported: whether to delete also TrainJobs whose model is on a claim that is deleted with them.
            dry_run: whether to report the results without changing anything.
            namespace: namespace of the TrainJobs; empty means the connection's.
            kubernetes_conn_id: ID of a connection of type `trainjob` or `kubernetes`; None finds the cluster as kubectl
                does.
            cluster_context: context of the kubeconfig, in place of the connection's.
            in_cluster: whether to use the service account of the worker's or triggerer's pod, in place of the
                connection's setting. True ignores the connection's kubeconfig.
            **task_arguments: arguments of `BaseOperator`.
        """
        super().__init__(**task_arguments)
        self.finished_for, self.active_for = finished_for, active_for
        self.unexported, self.report_only = unexported, dry_run
        self.namespace, self.kubernetes_conn_id = namespace, kubernetes_conn_id
        self.cluster_context, self.in_cluster = cluster_context, in_cluster
        check_cluster_arguments(self)

    @convert_permanent_errors()
    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Run one sweep, and return its results.

        Raises:
            AirflowFailException: the connection is wrong or lacks permissions.
            ClusterError: the cluster cannot be reached; a retry continues the sweep.
        """
        from trainjob.retention import sweep

        results = sweep(
            TrainJobHook.of(self).get_conn(),
            namespace=self.namespace,
            finished_for=self.finished_for,
            active_for=self.active_for,
            has_ended=partial(_has_task_ended, context),
            unexported=self.unexported,
            dry_run=self.report_only,
            on_result=lambda result: self.log.info("%s%s", "dry run: " if self.report_only else "", result),
        )
        return [
            {
                "job": result.reference.name,
                "namespace": result.reference.namespace,
                "uid": result.reference.uid,
                "done": result.action,
                "reason": result.reason,
            }
            for result in results
        ]


def _has_task_ended(context: Context, key: RunKey) -> bool | None:
    """Return whether the task instance of a run key has ended or was deleted.

    The state comes from Airflow's task execution API.

    Args:
        context: context of the task that runs the sweep.
        key: run key of a TrainJob.

    Returns:
        None if this is not known: the task instance is not one of this Airflow, its DAG is unknown, or Airflow does
            not respond.
    """
    instance = get_task_instance(key)
    if instance is None:
        return None
    dag, run, task, index = instance
    ti: Any = context["ti"]
    try:
        found = ti.get_task_states(dag_id=dag, task_ids=[task], run_ids=[run], map_index=None if index < 0 else index)
        states = found.get(run, {})
        name = task if index < 0 else f"{task}_{index}"
        if name in states:
            # All other states, such as deferred or up_for_retry, are active. A task without a state is active, too:
            # the scheduler is about to schedule it.
            return states[name] in ENDED_STATES
        # The task instance is missing, because a user deleted its run. If the DAG is unknown here, the task instance
        # may belong to another Airflow.
        ti.get_dag(dag)
    except Exception:  # noqa: BLE001 - after any error, the state is not known
        return None
    return True
