"""Wait for one TrainJob: a loop that yields effects, and two drivers that execute them.

[trainjob.lifecycle.wait_policy.WaitPolicy][] decides without I/O. The loop feeds it and yields what it needs next.
[wait][] executes the effects on the calling thread, [wait_async][] on an event loop. Both use the same shared
informers. A process that waits for a thousand TrainJobs holds one informer for these and one for their pods.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any

from trainjob.client import Cluster, ObjectEvent, WrittenTimes
from trainjob.lifecycle.async_inbox import AsyncInbox
from trainjob.lifecycle.identity import JobReference
from trainjob.lifecycle.job_logs import Listener
from trainjob.lifecycle.loop_batches import get_loop_batches
from trainjob.lifecycle.queues import get_with_timeout
from trainjob.lifecycle.wait_policy import Limits, WaitResult
from trainjob.lifecycle.wait_session import WaitSession
from trainjob.status import Outcome
from trainjob.threads import run_on_executor, run_on_thread


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


def _wait_effects(session: WaitSession, clock: Callable[[], float]) -> Generator[_Effect, Any, None]:
    """Yield the effects of a wait whose session is open; the last one is [_Conclude][].

    The driver executes each effect and sends its result to the generator.
    """
    result: WaitResult | None = None
    while result is None:
        received = yield _NextEvent(session.seconds_until_next_check(clock()))
        if received is None:
            session.start_queued_logs()
            if session.is_pod_watch_due(clock()):
                yield _Call(session.watch_pods)
            if session.is_diagnosis_due(clock()):
                yield _Call(lambda: session.diagnose(clock()))
            result = session.policy.evaluate(clock())
            continue
        kind, event = received
        if kind == "missing":
            kind, event = "job", (yield _Call(partial(session.fetch_job_event, event)))
        result = session.observe(kind, event, clock())
    yield _Conclude(result)


def wait(
    cluster: Cluster,
    reference: JobReference,
    *,
    limits: Limits | None = None,
    listener: Listener | None = None,
    written_times: WrittenTimes | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Wait on this thread until the TrainJob has finished.

    [Limits][] and [Listener][] explain the options.

    Args:
        cluster: the cluster of the TrainJob.
        reference: the TrainJob.
        limits: limits of the wait; None means `Limits()`, which limits no time.
        listener: callbacks for phases, log lines and progress.
        written_times: times up to which an earlier process has written the log. The lines before them have `is_written`
            set. None if no other process may continue the wait.
        clock: returns monotonic seconds; for tests.

    Returns:
        The outcome, also of a failed TrainJob; `outcome.raise_for_failure()` raises an error for that. A TrainJob that
        can no longer start, for example because no registry has its image, is ended and counts as failed.

    Raises:
        WaitTimeout: a limit was reached, and `limits.on_timeout` was applied.
        WrongCluster: the TrainJob is missing here, because it belongs to another cluster.
        ClusterError: no request can succeed any more (credentials, permissions); the TrainJob is not ended.
    """
    inbox: queue.SimpleQueue[tuple[str, ObjectEvent]] = queue.SimpleQueue()
    session = WaitSession(cluster, reference, limits or Limits(), listener or Listener(), clock(), written_times)
    effects = _wait_effects(session, clock)

    def execute(effect: _NextEvent | _Call) -> Any:
        if isinstance(effect, _Call):
            return effect.function()
        try:
            return get_with_timeout(inbox, effect.seconds)
        except queue.Empty:
            return None

    value = None  # the result of the previous effect
    try:
        session.open(inbox.put)
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
    written_times: WrittenTimes | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Wait like [wait][] without blocking the event loop.

    Requests run on threads, and events come from shared informers. A cancellation ends the wait and does not change the
    TrainJob. The listener's callbacks for logs and progress run on other threads.
    """
    inbox = AsyncInbox[tuple[str, ObjectEvent]]()
    session = WaitSession(cluster, reference, limits or Limits(), listener or Listener(), clock(), written_times)
    effects = _wait_effects(session, clock)
    value = None  # the result of the previous effect
    try:
        await get_loop_batches().run_on_thread(partial(session.open, inbox.put))
        while not isinstance(effect := effects.send(value), _Conclude):
            if isinstance(effect, _Call):
                value = await run_on_thread(effect.function)
            else:
                value = await inbox.get(effect.seconds)
        # It may take long, because a long log is read to its end.
        return await run_on_executor(cluster.outcome_executor, partial(session.conclude, effect.result))
    finally:
        session.close()
