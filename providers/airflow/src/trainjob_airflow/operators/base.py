"""The life of a task that is a TrainJob: submit or adopt, defer, tell, and end with the reason."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from trainjob.errors import AdmissionRefused, InvalidSpec, JobDeleted, Problem
from trainjob_airflow.hooks.trainjob import DEFAULT_CONNECTION, TrainJobHook
from trainjob_airflow.operators.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from trainjob.run import JobReference, Limits
    from trainjob.status import Outcome

# A step's field -> the operator's attribute, where Airflow has one of that name for itself: the workers' queue.
_ATTRIBUTES = {"queue": "queue_name"}
_STAND_IN_CLAIM = "workspace"  # for checks at parse time, when a run's claim has no name yet


class StepOperator(BaseOperator):
    """Runs one step as a TrainJob; the operators below it only name their step's arguments.

    A retry after a crash takes the running or succeeded TrainJob over. A first try, or one after a person cleared the
    task, repeats finished work and takes over only what is still running. The XCom is the outcome as JSON values:
    job, namespace, uid, attempt, phase, seconds, progress and what the step adds.

    Attributes:
        step_type: the class of `trainjob.spec` that the arguments are given to.
        step: a running task's arguments, rendered and checked.
    """

    step_type: ClassVar[type[Any]]
    template_fields: Sequence[str] = ("namespace",)
    ui_color = "#e8eefc"

    def __init__(
        self,
        *,
        step_arguments: Mapping[str, Any],
        queue_timeout: timedelta | None = None,
        start_timeout: timedelta | None = None,
        namespace: str = "",
        kubernetes_conn_id: str | None = DEFAULT_CONNECTION,
        deferrable: bool = True,
        on_kill_action: str = "delete",
        **task_arguments: Any,
    ) -> None:
        """Arguments are checked at once, unless one of them is a template or another task's result.

        Args:
            step_arguments: the step's own arguments by name; None means the step's default.
            queue_timeout: longest time in the queue; the TrainJob is deleted then.
            start_timeout: longest time until all pods of the training are ready; the TrainJob is deleted then.
            namespace: the TrainJob's namespace; empty means the connection's.
            kubernetes_conn_id: a connection of type `kubernetes`; None finds the cluster as kubectl does.
            deferrable: wait in the triggerer, where it costs no worker; False waits on the worker.
            on_kill_action: what killing the task does to its TrainJob: `delete` or `keep`.
            **task_arguments: those of every operator. `execution_timeout` counts while deferred, too.

        Raises:
            InvalidSpec: an argument is not allowed.
        """
        super().__init__(**task_arguments)
        if on_kill_action not in ("delete", "keep"):
            raise InvalidSpec(Problem("on_kill_action", repr(on_kill_action), "allowed are 'delete' and 'keep'"))
        for name, value in step_arguments.items():
            setattr(self, _ATTRIBUTES.get(name, name), value)
        self.step_names = tuple(step_arguments)
        self.queue_timeout, self.start_timeout = queue_timeout, start_timeout
        self.namespace, self.kubernetes_conn_id = namespace, kubernetes_conn_id
        self.deferrable = deferrable
        self.on_kill_action = on_kill_action
        self._reference: JobReference | None = None
        if not any(_is_open(value) for value in step_arguments.values()):
            self._step(_STAND_IN_CLAIM)

    # -- what Airflow calls -----------------------------------------------------------------------------------------

    def execute(self, context: Context) -> dict[str, Any]:
        """Submit or adopt the TrainJob, then wait: in the triggerer, or here.

        Raises:
            AirflowFailException: the request itself is wrong, so that a retry is useless.
            JobFailed: the TrainJob failed.
            TrainJobError: the cluster can't be asked, or a limit was reached.
        """
        from trainjob.run import Narrator, wait
        from trainjob.status import judge

        try:
            step = self.rendered_step(context)
            reference = self._submit(context, step)
        except (InvalidSpec, AdmissionRefused) as error:
            raise AirflowFailException(str(error)) from error
        cluster, limits = self.hook.get_conn(), self._limits(step)
        found = cluster.get_trainjob(reference.name, reference.namespace)
        # A trigger that fires at once can meet the end of this very run: what has ended is not waited for elsewhere.
        if self.deferrable and not judge(found).phase.finished:
            self._defer(reference, limits)
        outcome = wait(cluster, reference, limits=limits, listener=Narrator(reference, self.log.info).listener)
        return self._finish(context, outcome, reference)

    def execute_complete(self, context: Context, event: dict[str, Any] | None = None) -> dict[str, Any]:
        """Back from the triggerer with its event; without one, a deferred task is run again after a crash."""
        from trainjob import errors
        from trainjob.run import JobReference
        from trainjob.status import Outcome

        if event is None:
            return self.execute(context)
        reference = JobReference(**event["reference"])
        if "outcome" in event:
            return self._finish(context, Outcome.from_dict(event["outcome"]), reference)
        raise getattr(errors, event["kind"], errors.TrainJobError)(event["error"])

    def on_kill(self) -> None:
        """The task is killed on the worker: its TrainJob goes, unless told to keep it."""
        from trainjob.run import cancel

        if self._reference is not None and self.on_kill_action == "delete":
            cancel(self.hook.get_conn(), self._reference)
            self.log.info("TrainJob %s was deleted, as its task was killed", self._reference)

    # -- steps of it ------------------------------------------------------------------------------------------------

    @property
    def hook(self) -> TrainJobHook:
        """The hook for this task's connection."""
        return TrainJobHook(self.kubernetes_conn_id)

    def result(self, context: Context, outcome: Outcome) -> dict[str, Any]:  # noqa: ARG002 - for operators below
        """What goes into XCom after success, besides what every step gives."""
        return {}

    def _step(self, claim: str) -> Any:
        given = {name: getattr(self, _ATTRIBUTES.get(name, name)) for name in self.step_names}
        if isinstance(given.get("workspace"), Workspace):
            given["workspace"] = claim
        return self.step_type(**{name: value for name, value in given.items() if value is not None})

    def rendered_step(self, context: Context) -> Any:
        """The step to submit, when templates are rendered and the workspace's claim is known."""
        workspace = getattr(self, "workspace", None)
        return self._step(workspace.claim_in(context) if isinstance(workspace, Workspace) else _STAND_IN_CLAIM)

    def _submit(self, context: Context, step: Any) -> JobReference:
        from trainjob.run import submit
        from trainjob_airflow.run_key import adoption, run_key

        self._reference = reference = submit(
            self.hook.get_conn(),
            step,
            run_key(context),
            namespace=self.namespace,
            prefix=self.task_id,
            adopt=adoption(context),
            since=context["dag_run"].start_date,
        )
        self.log.info(
            "TrainJob %s, attempt %d, %s", reference, reference.attempt, "adopted" if reference.adopted else "created"
        )
        return reference

    def _limits(self, step: Any) -> Limits:
        from trainjob.manifest import train_job
        from trainjob.run import Limits

        restarts = train_job(step).max_restarts
        return Limits(queued=self.queue_timeout, starting=self.start_timeout, max_restarts=restarts)

    def _defer(self, reference: JobReference, limits: Limits) -> NoReturn:
        from trainjob_airflow.triggers.trainjob import TrainJobTrigger

        deadline = time.time() + self.execution_timeout.total_seconds() if self.execution_timeout else None
        trigger = TrainJobTrigger(
            reference=reference.to_dict(),
            limits=limits.to_dict(),
            deadline=deadline,
            kubernetes_conn_id=self.kubernetes_conn_id,
            on_kill_action=self.on_kill_action,
        )
        self.defer(trigger=trigger, method_name="execute_complete")

    def _finish(self, context: Context, outcome: Outcome, reference: JobReference) -> dict[str, Any]:
        try:
            outcome.raise_for_failure()
        except JobDeleted:
            if not reference.adopted:
                raise
            # Clearing a deferred task deletes its job while the new try may already have adopted it: start anew.
            self.log.info("TrainJob %s was deleted after it was adopted; starting another attempt", reference)
            return self.execute(context)
        values = outcome.to_dict()
        told = {name: values[name] for name in ("job", "namespace", "uid", "phase", "progress")}
        return {**told, "attempt": reference.attempt, "seconds": outcome.seconds, **self.result(context, outcome)}


def _is_open(value: Any) -> bool:
    """Whether a value is known only when the task runs.

    Raises:
        InvalidSpec: a template inside an object that Airflow does not render.
    """
    from airflow.sdk.definitions._internal.mixins import ResolveMixin
    from pydantic import BaseModel

    if isinstance(value, str):
        return "{{" in value or "{%" in value
    if isinstance(value, Mapping):
        return any(map(_is_open, value.values()))
    if isinstance(value, (list, tuple, set)):
        return any(map(_is_open, value))
    if isinstance(value, BaseModel) and "{{" in repr(value):
        name = type(value).__name__
        raise InvalidSpec(
            Problem(name, "a template inside", "Airflow renders no templates in it; give it as a dict of its fields")
        )
    return isinstance(value, ResolveMixin)
