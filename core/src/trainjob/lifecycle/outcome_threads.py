"""Threads on which waits collect evidence and end TrainJobs."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from trainjob.client import Cluster

T = TypeVar("T")


async def call_for_outcome(cluster: Cluster, function: Callable[[], T]) -> T:
    """Call a function on a thread of `cluster.outcome_executor`, and return its result.

    The thread has the caller's context (`contextvars`). The call may take long, because a long log is read to its end.
    The event loop's default threads must stay free: Airflow's triggerer writes log lines and XComs on them.
    """
    result: Future[T] = Future()

    def call() -> None:
        if result.set_running_or_notify_cancel():
            try:
                result.set_result(function())
            except BaseException as error:  # noqa: BLE001 - raised where it is awaited
                result.set_exception(error)

    context = contextvars.copy_context()
    cluster.outcome_executor.submit(lambda: context.run(call))
    return await asyncio.wrap_future(result)
