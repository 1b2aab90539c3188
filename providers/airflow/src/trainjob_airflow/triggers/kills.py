"""Kills of TrainJobs, which outlive the cancellation of their triggers.

The supervisor of Airflow's triggerer cancels a trigger again each second until the trigger has ended
(`TriggerRunnerSupervisor`, Airflow 3.1.8 to 3.3.2). A kill in the trigger's own asyncio task would be lost if it took
longer than a second, for example because many tasks are killed at once. So each kill has an asyncio task of its own,
and the requests of kills have threads of their own.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from trainjob.threads import BoundedExecutor, run_on_executor

if TYPE_CHECKING:
    from trainjob.client import Cluster
    from trainjob.lifecycle import Cancellation, JobReference

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_MAX_THREADS = 32
_MAX_SECONDS = 600.0  # for which a failed request is repeated
# Seconds for a kill after the triggerer has received SIGTERM. Airflow ends the triggerer 20 s after it.
_SECONDS_AT_EXIT = 15.0
_executor = BoundedExecutor("kill", _MAX_THREADS)
_kills_by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Task[None]]] = (
    weakref.WeakKeyDictionary()
)


def start_kill(uid: str, kill: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Run the kill of a TrainJob in a task of its own, and return the task.

    Args:
        uid: uid of the TrainJob. If a kill of it runs already, its task is returned.
        kill: the kill; it calls [cancel_with_retries][].
    """
    kills = _kills_by_loop.setdefault(asyncio.get_running_loop(), {})
    if uid in kills:
        kill.close()
    else:
        kills[uid] = asyncio.create_task(kill)
        kills[uid].add_done_callback(lambda _: kills.pop(uid))
    return kills[uid]


async def cancel_with_retries(cluster: Cluster, reference: JobReference, action: str) -> Cancellation:
    """Call [trainjob.lifecycle.cancel][] on a thread for kills, for up to 10 minutes.

    Raises:
        TrainJobError: the TrainJob continues to run, and no further request can succeed or the time is over.
        CancelledError: the event loop ends, and the TrainJob may continue to run.
    """
    from trainjob.client.backoff import retry
    from trainjob.lifecycle import cancel

    return await run_on_kill_thread(retry, partial(cancel, cluster, reference, action), timeout=_MAX_SECONDS)


async def run_on_kill_thread(
    function: Callable[_Parameters, _Result], *arguments: _Parameters.args, **keywords: _Parameters.kwargs
) -> _Result:
    """Run a function with requests on a thread for kills, and return its result.

    The default threads of the event loop are few, and they write logs and XComs. When the event loop ends, the function
    continues for up to 15 s.

    Raises:
        Exception: whatever the function raises.
        CancelledError: the event loop ends before the function does.
    """
    work = run_on_executor(_executor, partial(function, *arguments, **keywords))
    try:
        await asyncio.wait([work])
    except asyncio.CancelledError:
        if not await wait_despite_cancellation(work, _SECONDS_AT_EXIT):
            raise
    return work.result()


async def wait_despite_cancellation(work: asyncio.Future[Any], seconds: float) -> bool:
    """Return whether a task or future ends within some seconds.

    Cancellations of the caller are ignored. None is lost, because Airflow repeats that of a trigger each second.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not work.done() and (left := deadline - loop.time()) > 0:
        try:
            await asyncio.wait([work], timeout=left)
        except asyncio.CancelledError:
            continue
    return work.done()
