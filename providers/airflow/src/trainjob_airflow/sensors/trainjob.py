"""A task that waits for a TrainJob which another task, DAG, pipeline or person made."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseSensorOperator, XComArg
from airflow.sdk.bases.sensor import PokeReturnValue
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
)

from trainjob.errors import InvalidSpec, JobDeleted, JobFailed, Problem, TrainJobError, WaitTimeout
from trainjob_airflow.deferral import deferrable_by_default
from trainjob_airflow.failing import error_told
from trainjob_airflow.hooks.trainjob import DEFAULT_CONNECTION, TrainJobHook
from trainjob_airflow.run_key import check_run_key_fields, wanted

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainjob.client import Cluster
    from trainjob.lifecycle import FinishedJob, JobSelector

_TRIGGER = "trainjob_airflow.triggers.end.TrainJobEndTrigger"


class TrainJobSensor(BaseSensorOperator):
    """Waits until a TrainJob has ended well; one that does not exist yet is waited for, too.

    It may be anybody's: made with kubectl, the Kubeflow SDK, a pipeline or a DAG. Nothing is done to it, also when the
    task is killed or its time is over. The XCom is that of `TrainJobOperator`: job, namespace, uid, attempt, phase,
    seconds, progress.
    """

    template_fields: Sequence[str] = ("name", "run_key", "namespace")
    ui_color = "#e8eefc"

    def __init__(
        self,
        *,
        name: str = "",
        run_key: Mapping[str, Any] | None = None,
        namespace: str = "",
        kubernetes_conn_id: str | None = DEFAULT_CONNECTION,
        deferrable: bool | None = None,
        start_from_trigger: bool = False,
        **sensor_arguments: Any,
    ) -> None:
        """Give a name or a run key.

        Args:
            name: the TrainJob's name.
            run_key: who asked for it: a dict with `workflow`, `task` and `run` - a DAG's id, a task's id, a run's id -
                and, for mapped tasks, `map_index`. The newest attempt counts. `engine` and `origin` are those of this
                Airflow unless they are given, such as `kfp`.
            namespace: its namespace; empty means the connection's.
            kubernetes_conn_id: a connection of type `kubernetes`; None finds the cluster as kubectl does.
            deferrable: wait in the triggerer, where it costs no worker. By default as the operators do, but not when
                a `mode` is given, which says how to wait on workers.
            start_from_trigger: begin in the triggerer, too, so that no worker is needed before the end. Not for mapped
                tasks, which begin on a worker all the same, nor with another task's result as an argument.
            **sensor_arguments: those of every sensor. `timeout` and `execution_timeout` count while deferred, too.

        Raises:
            InvalidSpec: none or both of name and run key are given, the run key has other fields, or it can't begin in
                the triggerer.
        """
        if deferrable is None:
            deferrable = "mode" not in sensor_arguments and deferrable_by_default()
        super().__init__(**sensor_arguments)
        if bool(name) == (run_key is not None):
            raise InvalidSpec(Problem("name, run_key", "both are given" if name else "neither is given", "give one"))
        if isinstance(run_key, Mapping):  # else it is another task's result
            check_run_key_fields(run_key)
        self.name, self.run_key, self.namespace = name, run_key, namespace
        self.kubernetes_conn_id, self.deferrable = kubernetes_conn_id, deferrable
        if start_from_trigger and deferrable:
            self._start_from_trigger()

    def execute(self, context: Context) -> Any:
        """Look, and wait where there is something to wait for.

        Raises:
            AirflowFailException: no retry can help: it failed, it was named wrongly, or the cluster does not let us.
            AirflowSensorTimeout: the `timeout` is reached.
            JobFailed: the newest attempt for the run key failed; there may be another one.
            JobDeleted: somebody deleted it.
            TrainJobError: the cluster can't be asked.
        """
        if not self.deferrable:
            return super().execute(context)
        # What has ended is not waited for elsewhere: a trigger that fires at once meets the end of this very run.
        found = self.poke(context)
        return found.xcom_value if found else self._defer()

    def poke(self, context: Context) -> PokeReturnValue:  # noqa: ARG002 - Airflow's signature
        """Look once."""
        from trainjob.lifecycle import check_external

        try:
            cluster = self._cluster()
            ended = check_external(cluster, self._wanted(cluster), self.log.info)
        except TrainJobError as error:
            self._fail(error)
        return PokeReturnValue(ended is not None, None if ended is None else self._result(ended))

    def execute_complete(self, context: Context, event: dict[str, Any] | None = None) -> Any:
        """Back from the triggerer with its event; without one, a deferred task is run again after a crash."""
        from trainjob.lifecycle import FinishedJob, JobReference
        from trainjob.status import Outcome

        if event is None:
            return self.execute(context)
        if "error" in event:
            error = error_told(event)
            if not isinstance(error, TrainJobError):
                raise error
            self._fail(error)
        return self._result(FinishedJob(JobReference(**event["reference"]), Outcome.from_dict(event["outcome"])))

    def _defer(self) -> NoReturn:
        from trainjob_airflow.triggers.end import TrainJobEndTrigger

        job = self._wanted(self._cluster())
        limits = [timedelta(seconds=self.timeout), *([self.execution_timeout] if self.execution_timeout else [])]
        trigger = TrainJobEndTrigger(
            namespace=job.namespace,
            name=job.name,
            run_key=job.run_key.to_dict() if job.run_key else None,
            deadline=time.time() + min(limits).total_seconds(),
            kubernetes_conn_id=self.kubernetes_conn_id,
        )
        self.defer(trigger=trigger, method_name="execute_complete")

    def _start_from_trigger(self) -> None:
        """The triggerer renders the templates then, and Airflow itself counts the time, from the beginning."""
        from airflow.triggers.base import StartTriggerArgs

        values = {"namespace": self.namespace, "name": self.name, "run_key": self.run_key}
        if any(XComArg.iter_xcom_references(list(values.values()))):
            allowed = "allowed without other tasks' results in name, run_key and namespace"
            raise InvalidSpec(Problem("start_from_trigger", "True", allowed))
        self.start_from_trigger = True
        self.start_trigger_args = StartTriggerArgs(
            trigger_cls=_TRIGGER,
            trigger_kwargs={**values, "deadline": None, "kubernetes_conn_id": self.kubernetes_conn_id},
            next_method=self.execute_complete.__name__,
            timeout=timedelta(seconds=self.timeout),
        )

    def _cluster(self) -> Cluster:
        return TrainJobHook(self.kubernetes_conn_id).get_conn()

    def _wanted(self, cluster: Cluster) -> JobSelector:
        return wanted(cluster, name=self.name, run_key=self.run_key, namespace=self.namespace)

    def _result(self, ended: FinishedJob) -> dict[str, Any]:
        try:
            ended.outcome.raise_for_failure()
        except JobFailed as error:
            # A retry waits for what may come: another attempt for the run key, a TrainJob in place of a deleted one.
            self._fail(error, retryable=self.run_key is not None or isinstance(error, JobDeleted))
        values = ended.outcome.to_dict()
        told = {name: values[name] for name in ("job", "namespace", "uid", "phase", "progress")}
        return {**told, "attempt": ended.reference.attempt, "seconds": ended.outcome.seconds}

    def _fail(self, error: TrainJobError, *, retryable: bool | None = None) -> NoReturn:
        """As the sensor's `never_fail` and `soft_fail` say, which Airflow heeds for its own exceptions only."""
        if isinstance(error, WaitTimeout):
            runs_out_first = self.execution_timeout and self.execution_timeout.total_seconds() < self.timeout
            raise (AirflowTaskTimeout if runs_out_first else AirflowSensorTimeout)(str(error)) from error
        again = error.retryable if retryable is None else retryable
        if self.never_fail or (self.soft_fail and not again):
            raise AirflowSkipException(str(error)) from error
        if again:
            raise error
        raise AirflowFailException(str(error)) from error
