"""Base class of the operators that run one step as a TrainJob."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from trainjob.errors import IncompatibleVersion
from trainjob.spec.base_request import WaitSettings
from trainjob_airflow.default_retries import DEFAULT_RETRIES, DefaultRetries, fail_without_retry
from trainjob_airflow.deferral import MIN_TRIGGER_SECONDS, deferrable_by_default, get_deadline
from trainjob_airflow.hooks.trainjob import DEFAULT_CONNECTION, TrainJobHook
from trainjob_airflow.links.trainjob import LINKS, TRACKED_RUN_LINK
from trainjob_airflow.metrics import (
    count_errors,
    report_end,
    report_error,
    report_resubmission,
    report_skipped_lines,
    report_submission,
)
from trainjob_airflow.operators.argument_checks import (
    CLUSTER_FIELDS,
    check_cluster_arguments,
    check_durable,
    check_exit_codes,
    check_log_containers,
)
from trainjob_airflow.operators.templates import TemplatedOperator, is_resolved_at_run_time, is_template_file
from trainjob_airflow.operators.unknown_arguments import ARGUMENT_NAMES, check_argument_names
from trainjob_airflow.operators.workspace import Workspace
from trainjob_airflow.task_errors import convert_permanent_errors, error_from_event, is_unexpected
from trainjob_airflow.termination import StopRequest, WaitInterrupted, get_user_decision
from trainjob_airflow.version_compat import (
    CAN_OVERWRITE_RENDERED_FIELDS,
    AirflowException,
    AirflowRescheduleException,
    AirflowSkipException,
    AirflowTaskTimeout,
    conf,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from contextlib import AbstractContextManager

    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from trainjob.lifecycle import Cancellation, JobReference, Limits, Resubmission
    from trainjob.lifecycle.job_guard import JobGuard
    from trainjob.status import Outcome
    from trainjob_airflow.task_progress import TaskProgress

# Field of a step -> attribute of the operator, for names that Airflow's BaseOperator uses for itself.
_ATTRIBUTE_NAMES = {
    **ARGUMENT_NAMES,
    "on_kill": "on_kill_action",
    "on_failure": "on_failure_action",
    "resources": "step_resources",
}
_WAIT_DEFAULTS = {field: info.default for field, info in WaitSettings.model_fields.items()}
_TRIGGER_FAILED = "__fail__"  # `TRIGGER_FAIL_REPR` of Airflow 3.1 to 3.3
_UNKNOWN_TRIGGER = (
    "The triggerer could not create this task's trigger, for example because it has another version of the provider. "
    "Its TrainJob continues; the next try adopts it. If there is none, clear the task, or delete the TrainJob"
)
# Rendered TrainJobs of deferred tasks by uid, for `airflow dags test`: it runs both parts of a task in one process, and
# drops the arguments of the deferral (Airflow 3.3.2, `airflow.sdk.definitions.dag._run_task`).
_deferred_texts: dict[str, str] = {}
_LAST_LINE_SECONDS = 2.0  # of waiting for a line that is being written when the worker is stopped
_TIMEOUT_REASON = "its execution_timeout was reached"
_PLACEHOLDER_CLAIM = "workspace"  # for checks at parse time, when the claim of the DAG run has no name yet


def _needs_missing_package(step_arguments: Mapping[str, Any]) -> bool:
    """Return whether only a worker that has a framework's package can check the step."""
    from trainjob.spec.framework import names_missing_package

    trainer = step_arguments.get("trainer")
    return names_missing_package(step_arguments.get("config")) or (
        isinstance(trainer, Mapping) and names_missing_package(trainer.get("config"))
    )


class StepOperator(TemplatedOperator):
    """Run one step as a TrainJob; the base class of the operators for each kind of step.

    A retry after a crash adopts the TrainJob of the earlier try if it is running or has succeeded. After a user has
    cleared the task, a running TrainJob is adopted, and finished work is repeated, unless no task has ended with its
    result.

    The XCom is the outcome as JSON values: `job`, `namespace`, `uid`, `attempt`, `phase`, `seconds`, `progress`,
    `tracking_url` of a tracked run, and the values that the step adds.

    Attributes:
        step_type: class of `trainjob.spec` that receives the step's arguments.
        task_result: result of the task; empty before its end.
        rendered_trainjob: the TrainJob as YAML, as it is sent to the cluster; None before that. Airflow shows it among
            the rendered templates.
    """

    step_type: ClassVar[type[Any]]
    on_kill_action: str
    interruption_retries: int | str
    template_fields: Sequence[str] = (*CLUSTER_FIELDS, "rendered_trainjob")
    template_fields_renderers: ClassVar[dict[str, str]] = {"rendered_trainjob": "yaml"}
    # Stores the field at the end of each part of the task, also at a deferral.
    overwrite_rtif_after_execution = CAN_OVERWRITE_RENDERED_FIELDS
    operator_extra_links = LINKS
    ui_color = "#e8eefc"

    def __init__(
        self,
        *,
        step_arguments: Mapping[str, Any],
        namespace: str = "",
        kubernetes_conn_id: str | None = DEFAULT_CONNECTION,
        cluster_context: str | None = None,
        in_cluster: bool | None = None,
        deferrable: bool | None = None,
        get_logs: bool = True,
        log_containers: Sequence[str] | None = None,
        adopt_undelivered: bool = True,
        skip_on_exit_code: int | Collection[int] | None = None,
        durable: bool = True,
        retries: int | None = DEFAULT_RETRIES,
        **task_arguments: Any,
    ) -> None:
        """Create the operator, and check the step's arguments if all of them are known.

        Arguments are checked when the DAG is parsed, unless one of them is a template, a template file or another
        task's result, or a dict names the framework of a package that is not installed there.

        Args:
            step_arguments: the step's own arguments by name; None means the step's default.
            namespace: namespace of the TrainJob; empty means the connection's.
            kubernetes_conn_id: ID of a connection of type `trainjob` or `kubernetes`; None finds the cluster as kubectl
                does.
            cluster_context: context of the kubeconfig, in place of the connection's.
            in_cluster: whether to use the service account of the worker's or triggerer's pod, in place of the
                connection's setting. True ignores the connection's kubeconfig.
            deferrable: whether to wait in the triggerer, which occupies no worker; False waits on the worker. By
                default `[operators] default_deferrable`, or True if neither airflow.cfg nor the environment has it.
            get_logs: whether to write the log lines of the containers to the task's log. If False, phases and progress
                are still logged, and the task's error still has the last lines of a failed container.
            log_containers: names of the containers whose log lines are written, such as `["node"]`; by default all
                containers of the TrainJob's pods. The log names the containers whose lines are left out.
            adopt_undelivered: whether to adopt a TrainJob that has succeeded, but whose result no task has ended with,
                also after a clear, or a change of arguments that do not change the result: resources, placement, queue,
                deadline, image, labels and annotations. With False, the work is repeated in these cases.
            skip_on_exit_code: exit code, or several, of the container that failed first, with which the task is skipped
                instead of failed, such as `99` for a night without new data. With torchrun, it is that of the process
                that failed first.
            durable: always True, as with the `KubernetesPodOperator` of Airflow 3.3: the next try after a crash adopts
                the running TrainJob. False is refused.
            retries: number of further tries. If neither the task, `default_args` nor `[core] default_task_retries`
                states it, it is 2, and a training that has failed by itself, for example with an error of its program,
                is not tried again. A mapped `@task.trainjob` has Airflow's own default; with Airflow 3.1 and 3.2, so
                has every mapped task.
            **task_arguments: arguments of `BaseOperator`. `execution_timeout` counts from the start of each try on a
                worker, also while the task is deferred, and over attempts after interruptions.

        Raises:
            InvalidSpec: an argument has a wrong value, is missing, or does not exist.
        """
        check_argument_names(type(self), self.step_type, task_arguments)
        super().__init__(retries=retries, **task_arguments)
        # A retry policy of the user decides about each error.
        self._has_default_retries = isinstance(retries, DefaultRetries) and getattr(self, "retry_policy", None) is None
        for field, value in step_arguments.items():
            setattr(self, _ATTRIBUTE_NAMES.get(field, field), _WAIT_DEFAULTS.get(field) if value is None else value)
        self.step_argument_names = tuple(step_arguments)
        self.namespace, self.kubernetes_conn_id = namespace, kubernetes_conn_id
        self.cluster_context, self.in_cluster = cluster_context, in_cluster
        check_cluster_arguments(self)
        self.get_logs, self.log_containers = get_logs, check_log_containers(log_containers)
        self.deferrable = deferrable_by_default() if deferrable is None else deferrable
        self.adopt_undelivered = adopt_undelivered
        self.skip_on_exit_code, self.durable = check_exit_codes(skip_on_exit_code), check_durable(durable)
        if isinstance(workspace := step_arguments.get("workspace"), Workspace):
            workspace.check_cluster(self)
        self.link_addresses: dict[str, str] = {}
        self.rendered_trainjob: str | None = None
        self._stop_request = StopRequest()
        self._submitted_job: Mapping[str, Any] = {}
        self._step_result: Mapping[str, Any] = {}
        self.task_result: dict[str, Any] = {}
        if not _needs_missing_package(step_arguments) and not any(
            is_resolved_at_run_time(value) or is_template_file(value, self.template_ext)
            for value in step_arguments.values()
        ):
            self._build_step(_PLACEHOLDER_CLAIM)

    # -- methods that Airflow calls ---------------------------------------------------------------------------------

    def execute(self, context: Context) -> dict[str, Any]:
        """Submit or adopt the TrainJob, then wait for its end in the triggerer or on the worker.

        Raises:
            AirflowFailException: a retry cannot help; see `trainjob_airflow.task_errors`. Or the run has no logical
                date, and a later task needs one.
            AirflowException: a user has cleared the task or set its state; `on_kill` was applied to its
                TrainJob.
            AirflowRescheduleException: the worker was stopped; the same try continues with the TrainJob on another
                worker.
            JobFailed: the TrainJob failed.
            TrainJobError: the cluster cannot be reached, or a time limit of the wait has passed.
        """
        from trainjob_airflow.operators.later_templates import check_later_templates

        self._warn_about_queue()
        check_later_templates(self, context)
        with (
            self._handle_unexpected_errors(context),
            convert_permanent_errors(),
            fail_without_retry(has_default_retries=self._has_default_retries),
            self._store_failure(context),
            count_errors(context["ti"]),
        ):
            return self._run_attempts(context)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Resume the task after its deferral.

        Airflow also calls this method with an error if it could not load the trigger.
        """
        self._guard.may_run_unattended = next_method != _TRIGGER_FAILED
        if not self._guard.may_run_unattended:  # a difference of versions must not end the TrainJob
            self.log.warning("%s", _UNKNOWN_TRIGGER)
        with (
            self._handle_unexpected_errors(context),
            fail_without_retry(has_default_retries=self._has_default_retries),
        ):
            return super().resume_execution(next_method, next_kwargs, context)

    def _run_attempts(
        self,
        context: Context,
        ended: tuple[JobReference, Outcome] | None = None,
        deadline: float | None = None,
    ) -> dict[str, Any]:
        """Submit or adopt the TrainJob, wait for it, and return the result of the task.

        After an interruption, another attempt is submitted, and the wait continues with it.

        Args:
            context: context of the task.
            ended: TrainJob that the triggerer has followed, and its outcome; None submits one.
            deadline: Unix time in seconds at which the wait in the triggerer ends; by default `execution_timeout` after
                the start of the try.
        """
        from trainjob.lifecycle import run_attempts

        # Not built again if the outcome is the result of the task.
        get_step = cache(partial(self.rendered_step, context))
        if ended:
            self._publish_end(context, ended[1])
        reference, outcome = run_attempts(
            lambda earlier: self._submit(context, get_step(), earlier),
            lambda reference: self._follow(context, get_step(), reference, deadline),
            partial(self._report_resubmission, context),
            # The step of an earlier part of the task has checked the rendered text.
            interruption_retries=int(self.interruption_retries) if ended else get_step().interruption_retries,
            ended=ended,
        )
        return self._finish(context, outcome, reference)

    @convert_permanent_errors()
    def execute_complete(
        self, context: Context, event: dict[str, Any] | None = None, rendered_trainjob: str = "", **_unknown: Any
    ) -> dict[str, Any]:
        """Resume after the deferral with the trigger's event.

        After a crash, Airflow runs a deferred task again without an event. The task then starts with `execute`.

        Args:
            context: context of the task.
            event: event of the trigger.
            rendered_trainjob: text of the field `rendered_trainjob`, which the operator of a resumed task has lost.
            **_unknown: values that a newer version of the provider has stored at the deferral.
        """
        from trainjob.lifecycle import JobReference
        from trainjob.status import Outcome

        if event is None:
            return self.execute(context)
        self._guard.may_run_unattended = False
        reference = self._guard.reference = JobReference.from_dict(event.get("reference") or {})
        outcome = Outcome.from_dict(event["outcome"]) if "outcome" in event else None
        self._guard.may_run_unattended = is_unexpected(event)
        self._set_links(reference)
        self._set_tracking_link(event.get("tracking_url", ""))
        self.rendered_trainjob = rendered_trainjob or _deferred_texts.pop(reference.uid, "") or None
        self._step_result = event.get("receipt") or {}
        with self._store_failure(context):
            if outcome is None:
                report_error(context["ti"], event.get("kind") or IncompatibleVersion.__name__)
                raise error_from_event(event)
            with count_errors(context["ti"]):
                return self._run_attempts(context, (reference, outcome), event.get("deadline"))

    def on_kill(self) -> None:
        """Request the end of `execute` after a SIGTERM, or end the TrainJob after a timeout.

        Airflow calls this method on each SIGTERM, whatever its source, and when `execution_timeout` is reached on the
        worker.

        The task runner of Airflow 3.3 continues `execute` after a SIGTERM, so this method requests its end. `execute`
        then decides about the TrainJob, because a signal handler cannot query Airflow for the reason of the signal.
        """
        if isinstance(sys.exc_info()[1], AirflowTaskTimeout):
            if self._guard.reference is not None and self._guard.may_run_unattended:
                self._apply_kill_action(self._guard.reference, _TIMEOUT_REASON)
            return
        self._stop_request.request()

    def get_openlineage_facets_on_start(self) -> OperatorLineage[Any, Any]:
        """Return the datasets and run facets of the task for Airflow's OpenLineage provider.

        The provider calls this method at the task's start. It also calls it at every end, because the operator has no
        method of its own for that.
        """
        from trainjob_airflow.lineage import build_lineage

        workspace = getattr(self, "workspace", None)
        return build_lineage(
            self._build_step(_PLACEHOLDER_CLAIM),
            self.task_result,
            connection=self.kubernetes_conn_id or "",
            namespace=self.namespace,
            workspace=f"{self.dag_id}/{workspace.name}" if isinstance(workspace, Workspace) else "",
        )

    # -- parts of execute -------------------------------------------------------------------------------------------

    @cached_property
    def _guard(self) -> JobGuard:
        from trainjob.lifecycle.job_guard import JobGuard

        return JobGuard()

    @property
    def hook(self) -> TrainJobHook:
        """The hook for this task's connection."""
        return TrainJobHook.of(self)

    def extra_values(self, outcome: Outcome, step_result: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - for subclasses
        """Return the values that this step adds to the XCom and the asset events after success.

        The base class adds none. Subclasses override this method.
        """
        return {}

    def _build_step(self, claim: str) -> Any:
        arguments = {name: getattr(self, _ATTRIBUTE_NAMES.get(name, name)) for name in self.step_argument_names}
        if isinstance(arguments.get("workspace"), Workspace):
            arguments["workspace"] = claim
        return self._get_step_class()(**{name: value for name, value in arguments.items() if value is not None})

    def _get_step_class(self) -> type[Any]:
        return self.step_type

    def rendered_step(self, context: Context) -> Any:
        """Return the step to submit, with rendered templates and the workspace's claim."""
        workspace = getattr(self, "workspace", None)
        return self._build_step(
            workspace.claim_name(context) if isinstance(workspace, Workspace) else _PLACEHOLDER_CLAIM
        )

    def _store_failure(self, context: Context) -> AbstractContextManager[None]:
        from trainjob_airflow.task_failure import store_failure

        if not self.do_xcom_push:
            return contextlib.nullcontext()
        return store_failure(context, lambda: self._guard.reference)

    def _warn_about_queue(self) -> None:
        """Log a warning if Airflow's argument `queue` may be meant for Kueue."""
        is_default = self.queue == conf.get("operators", "default_queue", fallback="default")
        if not is_default and getattr(self, "queue_name", None) is None and getattr(self, "manifest", None) is None:
            self.log.warning(
                "queue=%r selects the Airflow workers of this task. queue_name= names a Kueue queue; it is not given, "
                "so the TrainJob is in no queue",
                self.queue,
            )

    def _submit(self, context: Context, step: Any, earlier: Resubmission | None) -> JobReference:
        from trainjob_airflow.operators.submission import submit_for_task

        cluster = self.hook.get_conn()
        if isinstance(workspace := getattr(self, "workspace", None), Workspace):
            workspace.check_cluster(self, cluster.namespace)
        # Only a guard that nothing has used yet, not even an earlier process of a deferred task, is in this state.
        is_first_attempt = self._guard.reference is None and not self._guard.may_run_unattended
        with self._guard.guard_submission():
            reference = self._guard.reference = submit_for_task(
                context,
                cluster,
                step,
                namespace=self.namespace,
                prefix=self.task_id,
                earlier=earlier,
                before_create=self._guard.record_creation,
                is_first_attempt=is_first_attempt,
                connection=self.kubernetes_conn_id or "",
                adopt_undelivered=self.adopt_undelivered,
                on_submitted=partial(setattr, self, "_submitted_job"),
                on_notice=self.log.info,
            )
        self.log.info(
            "TrainJob %s, attempt %d, %s", reference, reference.attempt, "adopted" if reference.adopted else "created"
        )
        report_submission(context["ti"], reference, operator=self.task_type, has_ended=self._had_ended_at_submission)
        self._set_links(reference)
        self._set_rendered_trainjob()
        return reference

    def _follow(self, context: Context, step: Any, reference: JobReference, deadline: float | None) -> Outcome:
        """Wait for the TrainJob on the worker, or defer the task, and return the outcome.

        Raises:
            TaskDeferred: the triggerer continues the wait.
            AirflowRescheduleException: the worker was stopped; see [execute][].
            AirflowException: a user has cleared the task or set its state.
        """
        from trainjob.lifecycle import Limits

        limits = Limits.of(step)
        # The trigger of an adopted TrainJob that has ended would only delay its result (see MIN_TRIGGER_SECONDS).
        if self.deferrable and not self._had_ended_at_submission:
            self._end_if_user_decided(context, reference)
            self._defer(context, reference, limits, deadline)
        outcome, progress = self._wait_on_worker(context, reference, limits)
        self._set_tracking_link(progress.tracking_url)
        self._step_result = progress.step_result
        self._publish_end(context, outcome)
        return outcome

    @property
    def _had_ended_at_submission(self) -> bool:
        """Whether the TrainJob had ended when it was adopted."""
        from trainjob.status import derive_verdict

        return derive_verdict(self._submitted_job).phase.finished

    def _set_links(self, reference: JobReference) -> None:
        """Set the addresses of the task's links, and remove the links without an address.

        Airflow would store those as empty links.
        """
        from trainjob_airflow.links.trainjob import build_link_addresses, read_link_templates

        templates = read_link_templates(self.kubernetes_conn_id)
        self.link_addresses = build_link_addresses(templates, reference, lambda: self.hook.get_conn().server)
        self._keep_links_with_address()

    def _set_tracking_link(self, tracking_url: str) -> None:
        """Set the address of the link to the tracked run.

        If it is empty, the link remains that of the trigger.
        """
        if tracking_url:
            self.link_addresses[TRACKED_RUN_LINK.field] = tracking_url
            self._keep_links_with_address()

    def _keep_links_with_address(self) -> None:
        self.operator_extra_links = [link for link in LINKS if link.field in self.link_addresses]

    def _set_rendered_trainjob(self) -> None:
        """Set the field `rendered_trainjob`, and log a warning if that fails."""
        from trainjob_airflow.operators.rendered_trainjob import render_trainjob

        try:
            self.rendered_trainjob = render_trainjob(self._submitted_job)
        except Exception:
            self.log.warning("The TrainJob is not shown in Rendered Templates", exc_info=True)

    def _defer(self, context: Context, reference: JobReference, limits: Limits, deadline: float | None) -> NoReturn:
        from trainjob_airflow.run_key import get_run_key
        from trainjob_airflow.trigger_start import Deferral, create_deferral_id, record_deferral
        from trainjob_airflow.triggers.trainjob import TrainJobTrigger

        deferral = Deferral(
            id=create_deferral_id(),
            cluster=self.hook.get_conn(),
            reference=reference,
            run_key_digest=get_run_key(context).digest,
            on_kill_action=self.on_kill_action,
            task_instance=context["ti"],
        )
        if deadline is None and self.execution_timeout:
            deadline = get_deadline(context, self.execution_timeout)
        trigger = TrainJobTrigger(
            reference=reference.to_dict(),
            limits=limits.to_dict(),
            deadline=deadline,
            kubernetes_conn_id=self.kubernetes_conn_id,
            cluster_context=self.cluster_context,
            in_cluster=self.in_cluster,
            on_kill_action=self.on_kill_action,
            get_logs=self.get_logs,
            log_containers=self.log_containers,
            deferral_id=deferral.id,
            do_xcom_push=self.do_xcom_push,
        )
        record_deferral(deferral)
        # The operator of the resumed task has lost the field, so Airflow would store an empty one at the end.
        kept = {"rendered_trainjob": self.rendered_trainjob or ""}
        _deferred_texts[reference.uid] = kept["rendered_trainjob"]
        self.defer(trigger=trigger, method_name="execute_complete", kwargs=kept)

    def _wait_on_worker(
        self, context: Context, reference: JobReference, limits: Limits
    ) -> tuple[Outcome, TaskProgress]:
        """Return the TrainJob's outcome, and what its log reported.

        Raises:
            AirflowRescheduleException: the worker was stopped; see [execute][].
            AirflowException: a user has cleared the task or set its state.
        """
        from trainjob.client import LogWriter
        from trainjob.lifecycle import wait
        from trainjob_airflow.task_log import create_line_writer
        from trainjob_airflow.task_progress import TaskProgress
        from trainjob_airflow.written_times import load_times, store_times

        outcome, written_times = None, load_times(context, reference)
        on_skipped = partial(report_skipped_lines, context["ti"])
        with (
            contextlib.suppress(WaitInterrupted),
            self._stop_request.interruptible(),
            LogWriter().open(create_line_writer(self.log.info), written_times.record, on_skipped) as log,
        ):
            progress = TaskProgress(reference, log, log_containers=self.log_containers if self.get_logs else ())
            progress.report_resumption(written_times)
            with self._guard.guard_wait():
                cluster, listener = self.hook.get_conn(), progress.listener
                try:
                    outcome = wait(cluster, reference, limits=limits, listener=listener, written_times=written_times)
                except AirflowTaskTimeout:
                    if not self._apply_kill_action(reference, _TIMEOUT_REASON).had_finished:
                        raise
                    outcome = wait(cluster, reference, limits=limits, listener=listener, written_times=written_times)
        if outcome is None:
            log.wait_until_written(_LAST_LINE_SECONDS)
            store_times(context, written_times)
            self._end_if_user_decided(context, reference)
            self.log.info(
                "The worker was stopped; TrainJob %s continues, and its task resumes on another worker", reference
            )
            # After a shorter time, the scheduler could take the end of this process for the end of the next one, as it
            # does after a deferral (Airflow 3.3; see MIN_TRIGGER_SECONDS).
            raise AirflowRescheduleException(datetime.now(tz=timezone.utc) + timedelta(seconds=MIN_TRIGGER_SECONDS))
        return outcome, progress

    def _end_if_user_decided(self, context: Context, reference: JobReference) -> None:
        """Apply the kill action and raise an error if a user has ended the task.

        A user ends it by clearing it or by setting its state. Airflow notifies a process of this late, and never
        notifies a trigger that it has not loaded yet.

        Raises:
            AirflowException: a user has cleared the task or set its state.
        """
        if state := get_user_decision(context["ti"]):
            self._apply_kill_action(reference, f"the state of its task is {state}")
            raise AirflowException(f"the task was stopped because its state is {state}")

    @contextlib.contextmanager
    def _handle_unexpected_errors(self, context: Context) -> Iterator[None]:
        """Decide about the TrainJob after an unexpected error.

        If another try of the task follows, the TrainJob is left to it. Otherwise the kill action is applied.
        """
        try:
            yield
        except AirflowRescheduleException:
            raise
        except Exception as error:
            if self._guard.may_run_unattended:
                try:
                    self._end_unless_retried(context, error)
                except Exception:
                    self.log.exception("A TrainJob of this task may still run, because its on_kill action failed")
            raise

    def _end_unless_retried(self, context: Context, error: Exception) -> None:
        from trainjob_airflow.run_key import get_run_key
        from trainjob_airflow.task_errors import will_retry

        if will_retry(context, error):
            self._guard.may_run_unattended = False
            job_text = f"TrainJob {self._guard.reference}" if self._guard.reference else "Its TrainJob"
            self.log.info("%s continues after this error; the next try of the task adopts it", job_text)
            return
        cluster = self.hook.get_conn()
        for line in self._guard.apply_kill_action(
            cluster, get_run_key(context), self._job_namespace(context), self.on_kill_action
        ):
            self.log.info("%s: its task failed, and no other try follows", line)

    def _job_namespace(self, context: Context) -> str:
        """Return the namespace of this task's TrainJob; empty means the connection's."""
        from trainjob_airflow.operators.submission import load_reference

        known = load_reference(context)
        return known.namespace if known else self.namespace

    def _apply_kill_action(self, reference: JobReference, reason: str) -> Cancellation:
        from trainjob.lifecycle import cancel

        end = cancel(self.hook.get_conn(), reference, self.on_kill_action)
        self._guard.may_run_unattended = False
        self.log.info("TrainJob %s: %s: %s", reference, end.text, reason)
        return end

    def _publish_end(self, context: Context, outcome: Outcome) -> None:
        """Publish the end of a TrainJob as XCom and metrics."""
        from trainjob_airflow.task_progress import PROGRESS_KEY, final_xcom_value
        from trainjob_airflow.usage_records import store_usage

        if self.do_xcom_push:
            tracking_url = self.link_addresses.get(TRACKED_RUN_LINK.field, "")
            context["ti"].xcom_push(PROGRESS_KEY, final_xcom_value(outcome, tracking_url))
        if store_usage(context, outcome, do_xcom_push=self.do_xcom_push):
            report_end(context["ti"], outcome)

    def _report_resubmission(self, context: Context, resubmission: Resubmission) -> None:
        self.log.info(resubmission.notice)
        report_resubmission(context["ti"])

    def _finish(self, context: Context, outcome: Outcome, reference: JobReference) -> dict[str, Any]:
        from trainjob_airflow.delivery import Result, record_result
        from trainjob_airflow.operators.results import add_asset_event_extra, build_task_result

        exit_code = outcome.first_failure[1]
        if exit_code in self.skip_on_exit_code and not outcome.succeeded:
            raise AirflowSkipException(f"TrainJob {reference}: {outcome.step} ended with {exit_code}: skipped")
        outcome.raise_for_failure()
        tracking_url = self.link_addresses.get(TRACKED_RUN_LINK.field)
        tracking_values = {"tracking_url": tracking_url} if tracking_url else {}
        extra_values = {**tracking_values, **self.extra_values(outcome, self._step_result)}
        add_asset_event_extra(context, self.outlets, outcome, reference, extra_values)
        self.task_result = build_task_result(outcome, reference, extra_values)
        record_result(Result(self.hook, reference, context["ti"]))
        return self.task_result
