"""What a person sees of a TrainJob in Airflow while it runs, besides the log: its progress as an XCom."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from trainjob.client import LogChannel, LogLine
    from trainjob.lifecycle import JobReference, Listener
    from trainjob.status import Outcome, Progress, Verdict

PROGRESS = "progress"
"""The XCom's key."""
_LEAST_SECONDS = 2.0  # between two writes for one task: phases follow each other fast while a job starts


class Account:
    """Writes what a waiter is told to the task's log, and keeps the newest of it.

    Attributes:
        on_news: called when there is something new to show, as often as the log tells progress; from several threads.
        receipt: what an export told of itself at its end, or what a training's code handed back, as `result`.
    """

    def __init__(self, reference: JobReference, log: LogChannel, *, get_logs: bool = True) -> None:
        """Nothing is known yet.

        Args:
            reference: whose account it is.
            log: the task's log.
            get_logs: whether the containers' lines are written there. They are read in any case, because progress
                and a step's result are in them.
        """
        from trainjob.lifecycle import ProgressLog

        self.on_news: Callable[[], None] = lambda: None
        self._log = ProgressLog(reference, log.report, log=log)
        self._news = ProgressLog(reference, lambda _: self.on_news())
        self._get_logs = get_logs
        self._verdict: Verdict | None = None
        self._progress: Progress | None = None
        self.receipt: dict[str, Any] = {}

    @property
    def listener(self) -> Listener:
        """To hand to `trainjob.lifecycle.wait`."""
        from trainjob.lifecycle import Listener

        return Listener(on_phase=self._on_phase, on_log=self._on_log, on_progress=self._on_progress)

    def value(self) -> dict[str, Any]:
        """The newest, as the XCom `progress` shows it."""
        verdict = self._verdict
        reason = (verdict.message or verdict.reason) if verdict else ""
        return _shown(verdict.phase.value if verdict else "", reason, self._progress)

    def _on_phase(self, verdict: Verdict) -> None:
        self._verdict = verdict
        self._log.log_phase(verdict)
        self._news.log_phase(verdict)

    def _on_progress(self, progress: Progress) -> None:
        self._progress = progress
        self._log.log_progress(progress)
        self._news.log_progress(progress)

    def _on_log(self, line: LogLine) -> None:
        from trainjob.status import handed_back

        self.receipt = handed_back(line.text) or self.receipt
        if self._get_logs:
            self._log.log_line(line)


def final_value(outcome: Outcome) -> dict[str, Any]:
    """What the XCom `progress` shows after the end."""
    reason = "" if outcome.succeeded else outcome.message or outcome.reason
    return _shown(outcome.phase.value, reason, outcome.progress)


def _shown(phase: str, reason: str, progress: Progress | None) -> dict[str, Any]:
    numbers = progress.to_dict() if progress else {}
    percent = None if progress is None or progress.percent is None else round(progress.percent, 1)
    names = ("step", "total", "epoch", "epochs", "loss")
    return {"phase": phase, "reason": reason, "percent": percent, **{name: numbers.get(name) for name in names}}


@contextlib.asynccontextmanager
async def shown_while_deferred(task_instance: Any, account: Account) -> AsyncIterator[None]:
    """Keep the XCom `progress` of a deferred task up to date.

    The writes happen on threads, one at a time; the newest value wins, and one that fails is left out: it must neither
    block the triggerer's event loop nor end the waiting. None is under way any more when this is left without an error.

    Args:
        task_instance: the trigger's; None under `dag.test()`, where nothing is written.
        account: what to show.
    """
    if task_instance is None:
        yield
        return
    loop, news, ended = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    def tell() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the triggerer stops
            loop.call_soon_threadsafe(news.set)

    async def write() -> None:
        while not ended.is_set():
            await news.wait()
            news.clear()
            if not ended.is_set():
                await asyncio.to_thread(_write, task_instance, account.value())
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(ended.wait(), _LEAST_SECONDS)

    # A write that was begun is never cancelled: its answer would be taken for the answer to somebody else's request.
    writing = asyncio.create_task(write())
    account.on_news = tell
    try:
        yield
    finally:
        ended.set()
        news.set()
    await writing


def _write(task_instance: Any, value: dict[str, Any]) -> None:
    from airflow.sdk.execution_time.xcom import XCom

    try:
        XCom.set(
            PROGRESS,
            value,
            dag_id=task_instance.dag_id,
            task_id=task_instance.task_id,
            run_id=task_instance.run_id,
            map_index=task_instance.map_index,
        )
    except Exception:
        logging.getLogger(__name__).debug("the progress could not be written", exc_info=True)
