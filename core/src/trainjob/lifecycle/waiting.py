"""Wait for one TrainJob: a loop that yields effects, and two drivers that execute them.

[trainjob.lifecycle.wait_policy.WaitPolicy][] decides without I/O. The loop feeds it and yields what it needs next.
[wait][] executes the effects on the calling thread, [wait_async][] on an event loop. Both use the same shared
informers. A process that waits for a thousand TrainJobs holds one informer for these and one for their pods.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from trainjob.client import Cluster, LogPositions, ObjectEvent
from trainjob.lifecycle.identity import JobReference
from trainjob.lifecycle.queues import get_async, get_with_timeout
from trainjob.lifecycle.wait_policy import Limits, WaitResult
from trainjob.lifecycle.wait_session import Listener, WaitSession
from trainjob.status import Outcome


@dataclass(frozen=True)
class _NextEvent:
    """Effect that returns the next event and its kind, or None after a timeout.

    Attributes:
        seconds: the timeout; None means no timeout.
    """

    seconds: float | None


@dataclass(frozen=True)
class _Call:
    """Effect that returns the result of a function, which may block during some requests."""

    function: Callable[[], Any]


@dataclass(frozen=True)
class _Conclude:
    """Last effect, which concludes the wait; it may block while a long log is read to its end."""

    result: WaitResult


_Effect = _NextEvent | _Call | _Conclude
_Deliver = Callable[[str, ObjectEvent], None]


def _wait_effects(session: WaitSession, deliver: _Deliver, clock: Callable[[], float]) -> Generator[_Effect, Any, None]:
    """Yield the effects of a wait; the last one is [_Conclude][].

    The driver executes each effect and sends its result to the generator.
    """
    yield _Call(partial(session.open, deliver))
    result: WaitResult | None = None
    while result is None:
        received = yield _NextEvent(session.seconds_until_next_check(clock()))
        if received is None:
            if session.is_diagnosis_due(clock()):
                yield _Call(lambda: session.diagnose(clock()))
            result = session.policy.evaluate(clock())
            continue
        kind, event = received
        if kind == "missing":
            kind, event = "job", (yield _Call(session.fetch_job_event))
        result = session.observe(kind, event, clock())
    yield _Conclude(result)


def wait(
    cluster: Cluster,
    reference: JobReference,
    *,
    limits: Limits | None = None,
    listener: Listener | None = None,
    positions: LogPositions | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Wait on this thread until the TrainJob has finished.

    [Limits][] and [Listener][] explain the options.

    Args:
        cluster: the cluster of the TrainJob.
        reference: the TrainJob.
        limits: limits of the wait; None means `Limits()`, which limits no time.
        listener: callbacks for phases, log lines and progress.
        positions: positions up to which an earlier process has written the log. The lines up to them have `is_written`
            set. None if no other process may continue the wait.
        clock: returns monotonic seconds; for tests.

    Returns:
        The outcome, also of a failed TrainJob; `outcome.raise_for_failure()` raises an error for that. A TrainJob that
        can no longer start, for example because no registry has its image, is ended and counts as failed.

    Raises:
        WaitTimeout: a limit was reached, and `limits.on_timeout` was applied.
        ClusterError: no request can succeed any more (credentials, permissions); the TrainJob is not ended.
    """
    inbox: queue.SimpleQueue[tuple[str, ObjectEvent]] = queue.SimpleQueue()
    session = WaitSession(cluster, reference, limits or Limits(), listener or Listener(), clock(), positions)
    effects = _wait_effects(session, lambda kind, event: inbox.put((kind, event)), clock)

    def execute(effect: _NextEvent | _Call) -> Any:
        if isinstance(effect, _Call):
            return effect.function()
        try:
            return get_with_timeout(inbox, effect.seconds)
        except queue.Empty:
            return None

    value = None  # the result of the previous effect
    try:
        while not isinstance(effect := effects.send(value), _Conclude):
            value = execute(effect)
        return session.conclude(effect.result)
    finally:
        session.close()


async def wait_async(
    cluster: Cluster,
    reference: JobReference,
    *,
    limits: Limits | None = None,
    listener: Listener | None = None,
    positions: LogPositions | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Wait like [wait][] without blocking the event loop.

    Requests run on threads, and events come from shared informers. A cancellation ends the wait and does not change the
    TrainJob. The listener's callbacks for logs and progress run on other threads.
    """
    loop, inbox = asyncio.get_running_loop(), asyncio.Queue[tuple[str, ObjectEvent]]()

    def deliver(kind: str, event: ObjectEvent) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(inbox.put_nowait, (kind, event))

    session = WaitSession(cluster, reference, limits or Limits(), listener or Listener(), clock(), positions)
    effects = _wait_effects(session, deliver, clock)

    async def execute(effect: _NextEvent | _Call) -> Any:
        if isinstance(effect, _Call):
            return await asyncio.to_thread(effect.function)
        try:
            return await get_async(inbox, effect.seconds)
        except asyncio.TimeoutError:
            return None

    value = None  # the result of the previous effect
    try:
        while not isinstance(effect := effects.send(value), _Conclude):
            value = await execute(effect)
        return await _conclude_on_thread(cluster, session, effect.result)
    finally:
        session.close()


async def _conclude_on_thread(cluster: Cluster, session: WaitSession, result: WaitResult) -> Outcome:
    """Conclude the wait on a thread of `cluster.outcome_executor`.

    The thread has the caller's context (`contextvars`). The conclusion may take long, because a long log is read to its
    end. The event loop's default threads must stay free: Airflow's triggerer writes log lines and XComs on them.
    """
    concluded: Future[Outcome] = Future()

    def conclude_now() -> None:
        if concluded.set_running_or_notify_cancel():
            try:
                concluded.set_result(session.conclude(result))
            except BaseException as error:  # noqa: BLE001 - raised where it is awaited
                concluded.set_exception(error)

    context = contextvars.copy_context()
    cluster.outcome_executor.submit(lambda: context.run(conclude_now))
    return await asyncio.wrap_future(concluded)
