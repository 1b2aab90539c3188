"""Progress of a TrainJob in the task's log and as an XCom, while the task runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from trainjob.client import LogChannel, LogLine, LogPositions
    from trainjob.lifecycle import JobReference, Listener
    from trainjob.status import Outcome, Progress, Verdict

PROGRESS_KEY = "progress"
"""Key of the XCom."""
_WRITE_INTERVAL_SECONDS = 2.0  # between two writes for one task, because phases change fast while a job starts


class TaskProgress:
    """Log of a TrainJob in its task's log, with a record of the newest phase and progress.

    Attributes:
        on_change: called when phase or progress has changed enough to be logged; from several threads.
        step_result: receipt of an export or a fetch, or the value that the training's code returned, as `result`.
    """

    def __init__(self, reference: JobReference, log: LogChannel, *, get_logs: bool = True) -> None:
        """Create an empty record.

        Args:
            reference: reference to the TrainJob.
            log: log of the task.
            get_logs: whether to write the lines of the containers to the log. They are read in any case, because they
                contain the progress and the step's result.
        """
        from trainjob.lifecycle import ProgressLog

        self._reference, self._log = reference, log
        self.on_change: Callable[[], None] = lambda: None
        self._progress_log = ProgressLog(reference, log.report, log=log)
        self._change_log = ProgressLog(reference, lambda _: self.on_change())
        self._get_logs = get_logs
        self._verdict: Verdict | None = None
        self._progress: Progress | None = None
        self.step_result: dict[str, Any] = {}

    @property
    def listener(self) -> Listener:
        """Listener for `trainjob.lifecycle.wait`."""
        from trainjob.lifecycle import Listener

        return Listener(self._on_phase, self._on_log, self._on_progress, on_earlier_progress=self._on_earlier_progress)

    def report_resumption(self, positions: LogPositions) -> None:
        """Write a line if this process continues a log that another process began."""
        if positions.is_stored:
            command = f"while the pods exist, all lines are printed by: trainjob logs {self._reference}"
            self._log.report(f"TrainJob {self._reference}: another process has written its log until here; {command}")

    def xcom_value(self) -> dict[str, Any]:
        """Return the newest phase and progress in the form of the XCom `progress`."""
        verdict = self._verdict
        reason = (verdict.message or verdict.reason) if verdict else ""
        return _build_xcom_value(verdict.phase.value if verdict else "", reason, self._progress)

    def _on_phase(self, verdict: Verdict) -> None:
        self._verdict = verdict
        self._progress_log.log_phase(verdict)
        self._change_log.log_phase(verdict)

    def _on_progress(self, progress: Progress) -> None:
        self._progress = progress
        self._progress_log.log_progress(progress)
        self._change_log.log_progress(progress)

    def _on_earlier_progress(self, progress: Progress) -> None:
        self._progress = progress
        self._change_log.log_progress(progress)

    def _on_log(self, line: LogLine) -> None:
        from trainjob.status import parse_step_result

        self.step_result = parse_step_result(line.text) or self.step_result
        if self._get_logs:
            self._progress_log.log_line(line)


def final_xcom_value(outcome: Outcome) -> dict[str, Any]:
    """Return the value of the XCom `progress` after the end of the TrainJob."""
    reason = "" if outcome.succeeded else outcome.message or outcome.reason
    return _build_xcom_value(outcome.phase.value, reason, outcome.progress)


def _build_xcom_value(phase: str, reason: str, progress: Progress | None) -> dict[str, Any]:
    numbers = progress.to_dict() if progress else {}
    percent = None if progress is None or progress.percent is None else round(progress.percent, 1)
    names = ("step", "total", "epoch", "epochs", "loss")
    value = {"phase": phase, "reason": reason, "percent": percent, **{name: numbers.get(name) for name in names}}
    return {**value, "metrics": numbers["metrics"]} if "metrics" in numbers else value


@contextlib.asynccontextmanager
async def publish_progress(task_instance: Any, progress: TaskProgress) -> AsyncIterator[None]:
    """Keep the XCom `progress` of a deferred task up to date.

    Threads write the values, one at a time, so that a write does not block the triggerer's event loop. Each write
    stores the newest value. A write that fails is skipped, so that it does not end the wait. No write is in progress
    after the context has ended without an error.

    Args:
        task_instance: task instance of the trigger; None under `dag.test()`, where nothing is written.
        progress: the progress to publish.
    """
    if task_instance is None:
        yield
        return
    loop, changed, ended = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    def notify() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the triggerer stops
            loop.call_soon_threadsafe(changed.set)

    async def write() -> None:
        while not ended.is_set():
            await changed.wait()
            changed.clear()
            if not ended.is_set():
                await asyncio.to_thread(_write_xcom, task_instance, progress.xcom_value())
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(ended.wait(), _WRITE_INTERVAL_SECONDS)

    # A write in progress is never cancelled: its response would be taken for the response to another request.
    writing = asyncio.create_task(write())
    progress.on_change = notify
    try:
        yield
    finally:
        ended.set()
        changed.set()
    await writing


def _write_xcom(task_instance: Any, value: dict[str, Any]) -> None:
    from airflow.sdk.execution_time.xcom import XCom

    try:
        XCom.set(
            PROGRESS_KEY,
            value,
            dag_id=task_instance.dag_id,
            task_id=task_instance.task_id,
            run_id=task_instance.run_id,
            map_index=task_instance.map_index,
        )
    except Exception:
        logging.getLogger(__name__).debug("The XCom 'progress' of the task could not be written", exc_info=True)
