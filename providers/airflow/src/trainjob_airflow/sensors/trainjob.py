"""Sensor that waits for a TrainJob which another task, DAG, pipeline or user created."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseSensorOperator, XComArg
from airflow.sdk.bases.sensor import PokeReturnValue

from trainjob.errors import InvalidSpec, JobDeleted, JobFailed, Problem, TrainJobError, WaitTimeout
from trainjob_airflow.deferral import deferrable_by_default, get_deadline
from trainjob_airflow.hooks.trainjob import DEFAULT_CONNECTION, TrainJobHook
from trainjob_airflow.operators.argument_checks import CLUSTER_FIELDS, check_cluster_arguments
from trainjob_airflow.run_key import check_run_key_fields, create_job_selector
from trainjob_airflow.task_errors import error_from_event
from trainjob_airflow.version_compat import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainjob.client import Cluster
    from trainjob.lifecycle import FinishedJob, JobSelector

_TRIGGER_CLASS = "trainjob_airflow.triggers.end.TrainJobEndTrigger"


class TrainJobSensor(BaseSensorOperator):
    """Wait until a TrainJob is complete; it need not exist yet.

    The TrainJob may have been created by kubectl, the Kubeflow SDK, a pipeline or a DAG. The sensor never changes it,
    even if the task is killed or times out. The XCom is that of `TrainJobOperator`: `job`, `namespace`, `uid`,
    `attempt`, `phase`, `seconds` and `progress`.
    """

    template_fields: Sequence[str] = ("name", "run_key", *CLUSTER_FIELDS)
    ui_color = "#e8eefc"

    def __init__(
        self,
        *,
        name: str = "",
        run_key: Mapping[str, Any] | None = None,
        namespace: str = "",
        kubernetes_conn_id: str | None = DEFAULT_CONNECTION,
        cluster_context: str | None = None,
        in_cluster: bool | None = None,
        deferrable: bool | None = None,
        start_from_trigger: bool = False,
        **sensor_arguments: Any,
    ) -> None:
        """Create the sensor from either a name or a run key.

        Args:
            name: name of the TrainJob.
            run_key: run key of the TrainJob, whose newest attempt counts: a dict with `workflow` (DAG ID), `task` (task
                ID), `run` (run ID) and, for mapped tasks, `map_index`. `engine` and `origin` are those of this Airflow
                by default; `engine` may be another one, such as `kfp`.
            namespace: namespace of the TrainJob; empty means the connection's.
            kubernetes_conn_id: ID of a connection of type `trainjob` or `kubernetes`; None finds the cluster as kubectl
                does.
            cluster_context: context of the kubeconfig, in place of the connection's.
            in_cluster: whether to use the service account of the worker's or triggerer's pod, in place of the
                connection's setting. True ignores the connection's kubeconfig.
            deferrable: whether to wait in the triggerer, which occupies no worker. By default as for the operators, but
                False if `mode` is given, because `mode` says how to wait on workers.
            start_from_trigger: whether to start in the triggerer as well, so that no worker is needed before the end.
                Mapped tasks ignore it and start on a worker. It is not allowed with another task's result as an
                argument.
            **sensor_arguments: arguments of `BaseSensorOperator`. `timeout` and `execution_timeout` count from the
                start of each try, also while the task is deferred.

        Raises:
            InvalidSpec: not exactly one of name and run key is given, the run key has other fields, or the sensor
                cannot start in the triggerer.
        """
        if deferrable is None:
            deferrable = "mode" not in sensor_arguments and deferrable_by_default()
        super().__init__(**sensor_arguments)
        if bool(name) == (run_key is not None):
            raise InvalidSpec(Problem("name, run_key", "both given" if name else "both omitted", "give one"))
        if isinstance(run_key, Mapping):  # otherwise it is another task's result
            check_run_key_fields(run_key)
        self.name, self.run_key, self.namespace = name, run_key, namespace
        self.kubernetes_conn_id, self.deferrable = kubernetes_conn_id, deferrable
        self.cluster_context, self.in_cluster = cluster_context, in_cluster
        check_cluster_arguments(self, ("name", "namespace"))
        if start_from_trigger and deferrable:
            self._configure_start_from_trigger()

    def execute(self, context: Context) -> Any:
        """Check the TrainJob, and wait for it if it has not ended.

        Raises:
            AirflowFailException: no retry can help: the TrainJob failed, its name is wrong, or the cluster denies
                access.
            AirflowSensorTimeout: the `timeout` was reached.
            JobFailed: the newest attempt for the run key failed; another attempt may follow.
            JobDeleted: the TrainJob was deleted.
            TrainJobError: the cluster cannot be reached.
        """
        if not self.deferrable:
            return super().execute(context)
        # Do not defer for a TrainJob that has ended: its trigger would fire at once, and Airflow could take the end of
        # this run for the end of the next one (Airflow 3.3; see deferral.MIN_TRIGGER_SECONDS).
        found = self.poke(context)
        return found.xcom_value if found else self._defer(context)

    def poke(self, context: Context) -> PokeReturnValue:  # noqa: ARG002 - Airflow's signature
        """Check the TrainJob once, and return its result if it has ended."""
        from trainjob.lifecycle import check_external

        try:
            cluster = self._cluster()
            finished_job = check_external(cluster, self._job_selector(cluster), self.log.info)
        except TrainJobError as error:
            self._fail(error)
        return PokeReturnValue(finished_job is not None, None if finished_job is None else self._result(finished_job))

    def execute_complete(self, context: Context, event: dict[str, Any] | None = None) -> Any:
        """Resume after the deferral with the trigger's event.

        After a crash, Airflow runs a deferred task again without an event. The task then starts with `execute`.
        """
        from trainjob.lifecycle import FinishedJob, JobReference
        from trainjob.status import Outcome

        if event is None:
            return self.execute(context)
        if "outcome" not in event:
            error = error_from_event(event)
            if not isinstance(error, TrainJobError):
                raise error
            self._fail(error)
        try:
            reference, outcome = (
                JobReference.from_dict(event.get("reference") or {}),
                Outcome.from_dict(event["outcome"]),
            )
        except TrainJobError as error:
            self._fail(error)
        return self._result(FinishedJob(reference, outcome))

    def _defer(self, context: Context) -> NoReturn:
        from trainjob_airflow.triggers.end import TrainJobEndTrigger

        cluster = self._cluster()
        job = self._job_selector(cluster)
        limits = [timedelta(seconds=self.timeout), *([self.execution_timeout] if self.execution_timeout else [])]
        trigger = TrainJobEndTrigger(
            namespace=job.namespace,
            name=job.name,
            run_key=job.run_key.to_dict() if job.run_key else None,
            deadline=get_deadline(context, min(limits)),
            kubernetes_conn_id=self.kubernetes_conn_id,
            cluster_context=self.cluster_context,
            in_cluster=self.in_cluster,
            cluster=cluster.identity.to_dict(),
        )
        self.defer(trigger=trigger, method_name="execute_complete")

    def _configure_start_from_trigger(self) -> None:
        """Configure the sensor to start in the triggerer.

        The triggerer then renders the templates, and Airflow itself counts the time from the start.
        """
        from airflow.triggers.base import StartTriggerArgs

        values = {field: getattr(self, field) for field in self.template_fields}
        if any(XComArg.iter_xcom_references(list(values.values()))):
            allowed = f"allowed without other tasks' results in {', '.join(values)}"
            raise InvalidSpec(Problem("start_from_trigger", "True", allowed))
        self.start_from_trigger = True
        self.start_trigger_args = StartTriggerArgs(
            trigger_cls=_TRIGGER_CLASS,
            trigger_kwargs={
                **values,
                "deadline": None,
                "in_cluster": self.in_cluster,
            },
            next_method=self.execute_complete.__name__,
            timeout=timedelta(seconds=self.timeout),
        )

    def _cluster(self) -> Cluster:
        return TrainJobHook.of(self).get_conn()

    def _job_selector(self, cluster: Cluster) -> JobSelector:
        return create_job_selector(cluster, name=self.name, run_key=self.run_key, namespace=self.namespace)

    def _result(self, finished_job: FinishedJob) -> dict[str, Any]:
        try:
            finished_job.outcome.raise_for_failure()
        except JobFailed as error:
            # A retry can succeed: another attempt may follow for the run key, or a TrainJob in place of a deleted one.
            self._fail(error, retryable=self.run_key is not None or isinstance(error, JobDeleted))
        for warning in finished_job.outcome.warnings:
            self.log.warning("TrainJob %s: %s", finished_job.reference, warning)
        values = finished_job.outcome.to_dict()
        common_values = {name: values[name] for name in ("job", "namespace", "uid", "phase", "progress", "usage")}
        return {**common_values, "attempt": finished_job.reference.attempt, "seconds": finished_job.outcome.seconds}

    def _fail(self, error: TrainJobError, *, retryable: bool | None = None) -> NoReturn:
        """Raise the error in the form that `never_fail`, `soft_fail` and the retries require.

        Airflow applies these two arguments to its own exceptions only.
        """
        if isinstance(error, WaitTimeout):
            is_execution_timeout = self.execution_timeout and self.execution_timeout.total_seconds() < self.timeout
            raise (AirflowTaskTimeout if is_execution_timeout else AirflowSensorTimeout)(str(error)) from error
        will_retry = error.retryable if retryable is None else retryable
        if self.never_fail or (self.soft_fail and not will_retry):
            raise AirflowSkipException(str(error)) from error
        if will_retry:
            raise error
        raise AirflowFailException(str(error)) from error
