"""Trigger that waits for the TrainJob of a deferred task."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from trainjob_airflow.deferral import delay_event
from trainjob_airflow.hooks.trainjob import DEFAULT_CONNECTION
from trainjob_airflow.task_states import TaskStateWatch
from trainjob_airflow.triggers.kills import (
    cancel_with_retries,
    run_on_kill_thread,
    start_kill,
    wait_despite_cancellation,
)
from trainjob_airflow.version_skew import ignore_arguments

if TYPE_CHECKING:
    from trainjob.client import Cluster
    from trainjob.lifecycle import JobReference, Limits

_AIRFLOW_CALLS_ON_KILL = hasattr(BaseTrigger, "on_kill")  # since Airflow 3.3
# Time for which a trigger waits for its kill. Airflow gives `on_kill` 30 s (`[triggerer] on_kill_timeout`).
_KILL_SECONDS = 20.0


@functools.cache
def _shared_logger() -> Any:
    """Return the logger of all triggers of this process.

    A trigger's own logger consists of 11 objects, which make each garbage collection of the triggerer longer. The lines
    get the trigger's task from the context in which they are written (`contextvars`).
    """
    return TrainJobTrigger.logger().bind()


class TrainJobTrigger(BaseTrigger):
    """Fire once, when the TrainJob has ended or the wait is over.

    Every end is an event, also an error. If the trigger raised it, Airflow would not call the operator's
    `execute_complete`.

    All triggers of a triggerer with the same connection and namespace share one informer for TrainJobs and one for
    pods. The events are:

    * `{"reference": {...}, "outcome": {...}, "receipt": {...}, "tracking_url": "...", "deadline": ...}`: the TrainJob
      has ended, with success or not; see `trainjob.status.Outcome.to_dict`. `receipt` is what the step's log reports at
      its end, such as an export's receipt, or empty. `tracking_url` is the address of the tracked run, or empty.
      `deadline` is the trigger's argument, which another attempt keeps.
    * `{"reference": {...}, "error": "...", "kind": "WaitTimeout", "retryable": true}`: the wait ended before that;
      `kind` is the error's class. After an error that is not in `trainjob.errors`, such as an ImportError, the
      TrainJob continues until the operator decides about it.
    """

    def __init__(
        self,
        *,
        reference: dict[str, Any],
        limits: dict[str, Any] | None = None,
        deadline: float | None = None,
        kubernetes_conn_id: str | None = DEFAULT_CONNECTION,
        on_kill_action: str = "delete",
        get_logs: bool = True,
        log_containers: Sequence[str] | None = None,
        cluster_context: str | None = None,
        in_cluster: bool | None = None,
        deferral_id: str = "",
        do_xcom_push: bool = True,
        **unknown: Any,
    ) -> None:
        """Create the trigger; all arguments are JSON values.

        Another version may have stored the arguments, so only the reference is required.

        Args:
            reference: reference to the TrainJob, as `trainjob.lifecycle.JobReference.to_dict` returns it.
            limits: seconds to wait and the actions after them, as `trainjob.lifecycle.Limits.to_dict` returns them.
            deadline: Unix time in seconds at which the wait ends; None means no limit. A restart of the triggerer does
                not change it.
            kubernetes_conn_id: ID of the Airflow connection, which the triggerer reads.
            on_kill_action: what happens to the TrainJob when a user kills the task: `delete`, `suspend` or `keep`.
            get_logs: whether to write the log lines of the containers to the task's log.
            log_containers: names of the containers whose lines are written; None means all containers.
            cluster_context: context of the kubeconfig; None means the connection's.
            in_cluster: whether to use the service account of the triggerer's pod; None means the connection's setting.
            deferral_id: ID that the trigger writes to the TrainJob when it starts, see
                `trainjob_airflow.trigger_start`.
            do_xcom_push: whether to write XComs: progress, times of the log, and the link to a tracked run.
            **unknown: arguments that only a newer version has; they are ignored.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        ignore_arguments(type(self), unknown)
        self.reference, self.limits, self.deadline = reference, limits or {}, deadline
        self.kubernetes_conn_id, self.on_kill_action = kubernetes_conn_id, on_kill_action
        self.get_logs, self.log_containers, self.deferral_id = get_logs, log_containers, deferral_id
        self.cluster_context, self.in_cluster, self.do_xcom_push = cluster_context, in_cluster, do_xcom_push
        self._cached_cluster: Cluster | None = None
        self._kill_task: asyncio.Task[None] | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path of the class and all arguments."""
        names = (
            "reference",
            "limits",
            "deadline",
            "kubernetes_conn_id",
            "on_kill_action",
            "get_logs",
            "log_containers",
            "cluster_context",
            "in_cluster",
            "deferral_id",
            "do_xcom_push",
        )
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, write log and XCom `progress` of the task, and yield the event.

        After a user has cleared the task or has set its state, the kill action is applied, and there is no event.
        """
        started_at = time.monotonic()
        self._log = self._log or _shared_logger()
        watch = TaskStateWatch(self.task_instance)
        try:
            async with watch:
                result = await self._wait_for_result()
            if watch.decided_state is not None:
                self._start_kill(is_decided=True)
                await asyncio.Event().wait()  # if the trigger ended now, Airflow would start it again for its task
        except asyncio.CancelledError as error:
            # Airflow 3.3 gives a message if it calls `on_kill` next, and none when the triggerer stops. A repeated
            # cancellation may come before that call, so the kill starts here.
            if watch.decided_state is not None or error.args or not _AIRFLOW_CALLS_ON_KILL:
                await self._kill(is_decided=watch.decided_state is not None)
            raise
        event = TriggerEvent({"reference": self.reference, **result})
        await delay_event(started_at, self.task_instance)
        yield event

    async def _wait_for_result(self) -> dict[str, Any]:
        """Return the fields of the event, also after an unexpected error."""
        try:
            return await self._wait()
        except Exception as error:
            self.log.exception(
                "The trigger failed; its task resumes and decides about TrainJob %s", self.reference.get("name")
            )
            return {"error": f"the trigger failed: {type(error).__name__}: {error}", "kind": type(error).__name__}

    async def _wait(self) -> dict[str, Any]:
        from trainjob.errors import TrainJobError
        from trainjob.lifecycle import wait_async
        from trainjob_airflow import metrics
        from trainjob_airflow.task_errors import event_from_error
        from trainjob_airflow.task_log import TriggererLog
        from trainjob_airflow.task_progress import ProgressPublisher, TaskProgress
        from trainjob_airflow.trigger_start import announce_start
        from trainjob_airflow.waiting_jobs import waiting_jobs
        from trainjob_airflow.written_times import StoredTimes

        on_skipped = functools.partial(metrics.report_skipped_lines, self.task_instance)
        xcom_task = self.task_instance if self.do_xcom_push else None
        try:
            cluster, reference = await self._cluster(), self._reference()
            await announce_start(cluster, reference, self.deferral_id)
            async with (
                StoredTimes(xcom_task if self.get_logs else None, reference) as written_times,
                TriggererLog(self.log.info, written_times, on_skipped) as log,
            ):
                progress = TaskProgress(reference, log, log_containers=self.log_containers if self.get_logs else ())
                progress.report_resumption(written_times)
                async with ProgressPublisher(xcom_task, progress):
                    limits, listener = self._limits(), progress.listener
                    with waiting_jobs.add(cluster, progress):
                        outcome = await wait_async(
                            cluster, reference, limits=limits, listener=listener, written_times=written_times
                        )
        except TrainJobError as error:
            return event_from_error(error)
        return {
            "outcome": outcome.to_dict(),
            "receipt": progress.step_result,
            "tracking_url": progress.tracking_url,
            "deadline": self.deadline,
        }

    async def on_kill(self) -> None:
        """Apply the kill action to the TrainJob unless it has ended.

        If [run][] has started the kill, this method waits for it.

        Airflow 3.3 calls this method after a user has marked the deferred task as failed or successful, or has cleared
        it. It also does so if the trigger was only handed to another triggerer; the TrainJob then continues.
        """
        await self._kill(is_decided=False)

    async def _kill(self, *, is_decided: bool) -> None:
        """Kill the TrainJob, and wait up to 20 s for it, despite repeated cancellations."""
        if not await wait_despite_cancellation(self._start_kill(is_decided=is_decided), _KILL_SECONDS):
            self.log.warning(
                "TrainJob %s: the kill action takes more than %d s. The triggerer continues to try; if it stops before "
                "that, the TrainJob runs until a sweep ends it",
                self._reference(),
                _KILL_SECONDS,
            )

    def _start_kill(self, *, is_decided: bool) -> asyncio.Task[None]:
        if self._kill_task is None:
            self._kill_task = start_kill(self.reference["uid"], self._apply_kill_action(is_decided=is_decided))
        return self._kill_task

    async def _apply_kill_action(self, *, is_decided: bool) -> None:
        """Apply the kill action to the TrainJob unless it has ended; no error is raised.

        Args:
            is_decided: whether the task's state is known to be a user's decision. Otherwise it is requested.
        """
        reference = self._reference()
        try:
            cluster = await self._cluster()
            if not is_decided and await self._was_handed_over(cluster, reference):
                self.log.info(
                    "TrainJob %s continues: its task is still deferred, or Airflow does not report the task's state",
                    reference,
                )
            elif self.on_kill_action == "keep":
                self.log.info("TrainJob %s continues to run: its task was killed", reference)
            else:
                end = await cancel_with_retries(cluster, reference, self.on_kill_action)
                self.log.info("TrainJob %s: %s: its task was killed", reference, end.text)
        except Exception:
            self.log.exception("The kill action of TrainJob %s failed; it continues until a sweep ends it", reference)

    async def _was_handed_over(self, cluster: Cluster, reference: JobReference) -> bool:
        """Return whether the task is still deferred, so that another triggerer runs its trigger.

        A cleared task may be deferred again by now. Its new try has then adopted the TrainJob, which distinguishes this
        case from a handover.
        """
        from trainjob.manifest import labels
        from trainjob_airflow.termination import was_handed_over
        from trainjob_airflow.version_compat import run_request

        if not self.task_instance or not await run_request(was_handed_over, self.task_instance):
            return False
        job = await run_on_kill_thread(cluster.get_trainjob, reference.name, reference.namespace)
        return job is None or labels.get_adoption_time(job) == reference.adopted_at

    async def _cluster(self) -> Cluster:
        from trainjob_airflow.hooks.trainjob import TrainJobHook

        if self._cached_cluster is None:
            hook = TrainJobHook.of(self)
            self._cached_cluster = await hook.get_conn_async()
        return self._cached_cluster

    def _limits(self) -> Limits:
        from trainjob.lifecycle import Limits

        limits = Limits.from_dict(self.limits)
        if self.deadline is None:
            return limits
        return replace(limits, total=timedelta(seconds=max(0.0, self.deadline - time.time())))

    def _reference(self) -> JobReference:
        from trainjob.lifecycle import JobReference

        return JobReference.from_dict(self.reference)
