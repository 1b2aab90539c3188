"""Progress of a TrainJob in the task's log and as an XCom, while the task runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

from trainjob_airflow.links.trainjob import TRACKED_RUN_LINK
from trainjob_airflow.version_compat import run_request

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from trainjob.client import LogChannel, LogLine, WrittenTimes
    from trainjob.lifecycle import JobReference, Listener
    from trainjob.status import Outcome, Phase, Progress, Verdict

PROGRESS_KEY = "progress"
"""Key of the XCom."""
_CATCH_UP_SECONDS = 5.0  # for a log that is behind when its TrainJob has ended; then the task ends soon
_WRITE_INTERVAL_SECONDS = 2.0  # between two writes for one task, because phases change fast while a job starts


class TaskProgress:
    """Log of a TrainJob in its task's log, with a record of the newest phase and progress.

    Attributes:
        on_change: called when phase or progress has changed enough to be logged, and with each progress that an earlier
            process has logged; from several threads.
        on_phase: called with this object when the phase has changed.
        step_result: receipt of an export or a fetch, or the value that the training's code returned, as `result`, or as
            `result_error` the reason why it can't be used.
        tracking_url: address of the tracked run; empty before the log has it, and without one.
    """

    def __init__(
        self, reference: JobReference, log: LogChannel, *, log_containers: Collection[str] | None = None
    ) -> None:
        """Create an empty record.

        Args:
            reference: reference to the TrainJob.
            log: log of the task.
            log_containers: names of the containers whose lines are written to the log; None means all containers. The
                others are read, too, because a container's lines may contain progress and the step's result.
        """
        from trainjob.lifecycle import ProgressLog

        self._reference, self._log = reference, log
        self.on_change: Callable[[], None] = _do_nothing
        self.on_phase: Callable[[TaskProgress], None] = _ignore
        self._progress_log = ProgressLog(reference, self._report, log=log)
        self._log_containers, self._unwritten_containers = log_containers, set[str]()
        self._verdict: Verdict | None = None
        self._progress: Progress | None = None
        self.step_result: dict[str, Any] = {}
        self.tracking_url = ""

    @property
    def listener(self) -> Listener:
        """Listener for `trainjob.lifecycle.wait`."""
        from trainjob.lifecycle import Listener

        on_warning = self._progress_log.log_warning
        return Listener(
            self._on_phase,
            self._on_log,
            self._on_progress,
            on_warning,
            on_earlier_progress=self._on_earlier_progress,
            catch_up_seconds=_CATCH_UP_SECONDS,
        )

    @property
    def phase(self) -> Phase | None:
        """Newest phase of the TrainJob; None before the first one is known."""
        return self._verdict.phase if self._verdict else None

    def report_resumption(self, written_times: WrittenTimes) -> None:
        """Write a line if this process continues a log that another process began."""
        if resumption := written_times.resumption:
            command = f"while the pods exist, all lines are printed by: trainjob logs {self._reference}"
            self._log.report(f"TrainJob {self._reference}: {resumption}; {command}")

    def xcom_value(self) -> dict[str, Any]:
        """Return the newest phase and progress in the form of the XCom `progress`."""
        verdict = self._verdict
        reason = (verdict.message or verdict.reason) if verdict else ""
        phase = verdict.phase.value if verdict else ""
        return _build_xcom_value(phase, reason, self._progress, self.tracking_url)

    def _report(self, text: str) -> None:
        self._log.report(text)
        self.on_change()

    def _on_phase(self, verdict: Verdict) -> None:
        before, self._verdict = self.phase, verdict
        if verdict.phase is not before:
            self.on_phase(self)
        self._progress_log.log_phase(verdict)

    def _on_progress(self, progress: Progress) -> None:
        self._progress = progress
        self._progress_log.log_progress(progress)

    def _on_earlier_progress(self, progress: Progress) -> None:
        self._progress = progress
        self.on_change()

    def _on_log(self, line: LogLine) -> None:
        from trainjob.status import parse_step_result, parse_tracking_url

        if step_result := parse_step_result(line.text):
            self.step_result = step_result
            if error := step_result.get("result_error"):
                self._progress_log.log_warning(error)
        if tracking_url := parse_tracking_url(line.text):
            self.tracking_url = tracking_url
            self.on_change()
        if self._log_containers is None or line.container in self._log_containers:
            self._progress_log.log_line(line)
        elif self._log_containers:
            self._report_unwritten(line)

    def _report_unwritten(self, line: LogLine) -> None:
        """Write once for each container that its lines are left out.

        A notice about all containers is written itself.
        """
        if not line.container:
            self._progress_log.log_line(line)
        elif line.container not in self._unwritten_containers:
            self._unwritten_containers.add(line.container)
            named = ", ".join(self._log_containers or ())
            self._log.report(
                f"TrainJob {self._reference}: lines of container {line.container} are not written here, because "
                f"log_containers names only {named}; print them with: {line.command}"
            )


def _do_nothing() -> None:
    pass


def _ignore(_: TaskProgress) -> None:
    pass


def final_xcom_value(outcome: Outcome, tracking_url: str = "") -> dict[str, Any]:
    """Return the value of the XCom `progress` after the end of the TrainJob.

    Args:
        outcome: outcome of the TrainJob.
        tracking_url: address of the tracked run; empty if there is none.
    """
    reason = "" if outcome.succeeded else outcome.cause
    value = _build_xcom_value(outcome.phase.value, reason, outcome.progress, tracking_url)
    return {**value, "usage": outcome.usage.to_dict()} if outcome.usage else value


def _build_xcom_value(phase: str, reason: str, progress: Progress | None, tracking_url: str) -> dict[str, Any]:
    numbers = progress.to_dict() if progress else {}
    percent = None if progress is None or progress.percent is None else round(progress.percent, 1)
    names = ("step", "total", "epoch", "epochs", "loss")
    value = {"phase": phase, "reason": reason, "percent": percent, **{name: numbers.get(name) for name in names}}
    optional = ("metrics", "remaining", "reported_at")
    value |= {name: numbers[name] for name in optional if name in numbers}
    value |= {"ranks": str(progress.ranks)} if progress and progress.ranks else {}
    return {**value, **({"tracking_url": tracking_url} if tracking_url else {})}


class ProgressPublisher:
    """Writer of the XCom `progress` of a deferred task, and of the link to its tracked run.

    It is an asynchronous context manager. Threads write the values, one at a time, so that a write does not block the
    triggerer's event loop. Each write stores the newest value. A write that fails is skipped, so that it does not end
    the wait. No write is in progress after the context has ended without an error.
    """

    def __init__(self, task_instance: Any, progress: TaskProgress) -> None:
        """Create the context.

        Args:
            task_instance: task instance of the trigger; None under `dag.test()`, where nothing is written.
            progress: the progress to publish.
        """
        self._task_instance, self._progress = task_instance, progress
        self._has_changed, self._has_ended, self._stored_tracking_url = False, task_instance is None, ""
        self._end: asyncio.Event | None = None
        self._writing: asyncio.Task[None] | None = None  # exists while values are written

    async def __aenter__(self) -> None:
        """Write the progress whenever it changes."""
        from trainjob.lifecycle.loop_batches import get_loop_batches

        self._batches = get_loop_batches()
        if self._task_instance is not None:
            self._progress.on_change = self._notify

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End the writes."""
        self._has_ended = True
        if self._end is not None:
            self._end.set()
        if kind is None and self._writing is not None:
            await self._writing

    def _notify(self) -> None:
        if not self._has_changed:
            self._has_changed = True
            self._batches.call_soon(self._on_change)

    def _on_change(self) -> None:
        if self._writing is None and not self._has_ended:
            self._end = asyncio.Event()
            # A write in progress is never cancelled: its response would be taken for the response to another request.
            self._writing = asyncio.create_task(self._write(self._end))

    async def _write(self, end: asyncio.Event) -> None:
        """Write the newest values until there are no changes for some seconds."""
        while self._has_changed and not self._has_ended:
            self._has_changed = False
            await run_request(_write_xcom, self._task_instance, PROGRESS_KEY, self._progress.xcom_value())
            if (tracking_url := self._progress.tracking_url) != self._stored_tracking_url:
                self._stored_tracking_url = tracking_url
                await run_request(_write_xcom, self._task_instance, TRACKED_RUN_LINK.xcom_key, tracking_url)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(end.wait(), _WRITE_INTERVAL_SECONDS)
        self._writing = self._end = None


def _write_xcom(task_instance: Any, key: str, value: Any) -> None:
    from airflow.sdk.execution_time.xcom import XCom

    try:
        XCom.set(
            key,
            value,
            dag_id=task_instance.dag_id,
            task_id=task_instance.task_id,
            run_id=task_instance.run_id,
            map_index=task_instance.map_index,
        )
    except Exception:
        logging.getLogger(__name__).debug("The XCom %r of the task could not be written", key, exc_info=True)
