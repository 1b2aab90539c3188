"""Waiting for one TrainJob: one set of decisions, and two drivers that feed it.

[trainjob.run.vigil.Vigil][] decides and does no IO; [wait][] feeds it from a queue on the calling thread,
[wait_async][] from an event loop. Both read the same shared watches, so a process that waits for a thousand jobs holds
one list+watch for their TrainJobs and one for their pods.
"""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from trainjob.cluster import Change, Cluster, LogFollower, LogLine, Subscription, last_lines, warnings_about
from trainjob.errors import ClusterError, WaitTimeout
from trainjob.run.identity import JobReference
from trainjob.run.vigil import Decision, Limits, OnTimeout, Vigil
from trainjob.status import (
    ContainerFailure,
    Outcome,
    Phase,
    Progress,
    TorchTuneProgress,
    Verdict,
    conclude,
    failures,
)

_LOG_SECONDS = 10.0  # after the end: how long to read on in the logs
_EVIDENCE_EVERY = 15.0  # a job that does not get going: how often to look for the reason in its events


@dataclass
class Listener:
    """What a waiter is told on the way; each callback may be called from other threads, never two at once.

    Attributes:
        on_phase: the phase has changed, or why it does not.
        on_log: a log line of any container.
        on_progress: the training has got on.
    """

    on_phase: Callable[[Verdict], None] = field(default=lambda _: None)
    on_log: Callable[[LogLine], None] = field(default=lambda _: None)
    on_progress: Callable[[Progress], None] = field(default=lambda _: None)


class Attendance:
    """One job's place at the shared watches and its log followers; the part both drivers share."""

    def __init__(
        self, cluster: Cluster, reference: JobReference, limits: Limits, listener: Listener, now: float
    ) -> None:
        """Read the job once; subscribe with [open][]."""
        self._cluster, self._reference, self._limits, self._listener = cluster, reference, limits, listener
        self._progress = TorchTuneProgress()
        self._last_progress: Progress | None = None
        self._logs = LogFollower(cluster, reference.namespace, self._on_log)
        self.vigil = Vigil(self._read() or _stand_in(reference), limits, listener.on_phase, now)
        self._subscriptions: list[Subscription] = []

    def open(self, deliver: Callable[[str, Change], None]) -> None:
        """Subscribe; `deliver` is told ("job" or "pod", change) from other threads and must not block."""
        name, namespace = self._reference.name, self._reference.namespace

        def on_pod(change: Change) -> None:
            if self._is_ours(change):
                self._logs.observe(change)
                deliver("pod", change)

        self._subscriptions.append(self._cluster.pod_feed(namespace).subscribe(name, on_pod))
        self._subscriptions.append(
            self._cluster.trainjob_feed(namespace).subscribe(name, lambda change: deliver("job", change))
        )
        # Read once more: what ended or went before the subscription is told by no watch.
        found = self._read()
        deliver("job", Change(found or self.vigil.job, gone=found is None))

    def observe(self, kind: str, change: Change, now: float) -> Decision | None:
        """Hand a change on to the decisions."""
        return self.vigil.observe_job(change, now) if kind == "job" else self.vigil.observe_pod(change, now)

    def look(self) -> None:
        """The job does not get going: find out why (blocking IO)."""
        reasons = warnings_about(
            self._cluster, self._reference.namespace, self._reference.name, self.vigil.pods.values()
        )
        if reasons:
            self.vigil.explain(reasons[-2:])

    def conclude(self, decision: Decision) -> Outcome:
        """Gather the evidence, end the job where that is ours to do, and say how it was (blocking IO).

        Raises:
            WaitTimeout: a limit was reached.
        """
        verdict = decision.verdict
        if decision.timeout:
            raise WaitTimeout(f"TrainJob {self._reference} is {verdict}: {decision.timeout}; {self._give_up()}")
        # The pods' watch may lag behind the TrainJob's, or not have begun: what it missed is caught up here.
        pods = self._list_pods()
        for pod in pods:
            self._logs.observe(Change(pod))
        evidence = {} if verdict.phase is Phase.COMPLETE else self._gather(verdict, pods)
        if decision.end_job:
            self._logs.catch_up(_LOG_SECONDS)  # they go with the job
            self._cluster.delete_trainjob(self._reference.name, self._reference.namespace, self._reference.uid)
            self._listener.on_phase(verdict)
        self._logs.finish(_LOG_SECONDS)
        outcome = conclude(self.vigil.job, verdict, progress=self._last_progress, **evidence)
        if outcome.log_tail or outcome.exit_code is None:
            return outcome
        return replace(outcome, log_tail=self._logs.tail(f"{outcome.step}-{outcome.rank}"))

    def abandon(self) -> None:
        """Stop looking; the job goes on."""
        for subscription in self._subscriptions:
            subscription.close()
        self._logs.stop()

    def _gather(self, verdict: Verdict, listed: list[dict[str, Any]]) -> dict[str, Any]:
        name, namespace = self._reference.name, self._reference.namespace
        newest = {pod["metadata"]["uid"]: pod for pod in listed}
        pods = {**self.vigil.former_pods, **self.vigil.pods, **newest}  # gone ones are only in memory
        failed = failures(pods.values())
        first = next((f for f in failed if not verdict.step or f.step == verdict.step), None)
        return {
            "failures": failed,
            "events": warnings_about(self._cluster, namespace, name, pods.values()),
            "log_tail": self._tail_of(first),
        }

    def _read(self) -> dict[str, Any] | None:
        found = self._cluster.get_trainjob(self._reference.name, self._reference.namespace)
        return found if found is not None and found["metadata"]["uid"] == self._reference.uid else None

    def _list_pods(self) -> list[dict[str, Any]]:
        try:
            pods = self._cluster.list_pods(self._reference.name, self._reference.namespace)
        except ClusterError:
            return []
        return [pod for pod in pods if self._is_ours(Change(pod))]

    def _give_up(self) -> str:
        name, namespace = self._reference.name, self._reference.namespace
        if self._limits.on_timeout is OnTimeout.DELETE:
            self._cluster.delete_trainjob(name, namespace, self._reference.uid)
            return "it was deleted"
        if self._limits.on_timeout is OnTimeout.SUSPEND:
            self._cluster.suspend_trainjob(name, namespace)
            return "it was suspended"
        return "it goes on"

    def _tail_of(self, failure: ContainerFailure | None) -> tuple[str, ...]:
        if failure is None:
            return ()
        lines = last_lines(self._cluster, self._reference.namespace, failure)
        return tuple(lines or failure.message.splitlines())  # a command that could not start has no log

    def _is_ours(self, change: Change) -> bool:
        """Pods carry their JobSet's uid and not the TrainJob's; one older than the TrainJob belongs to a former one."""
        if change.found is None:
            return False
        created = change.found["metadata"].get("creationTimestamp", "")
        return bool(created >= self.vigil.job["metadata"].get("creationTimestamp", ""))

    def _on_log(self, line: LogLine) -> None:
        if progress := self._progress.feed(line.text):
            self._last_progress = progress
            self._listener.on_progress(progress)
        self._listener.on_log(line)


def _stand_in(reference: JobReference) -> dict[str, Any]:
    """A TrainJob that is gone already, as far as it is known."""
    return {"metadata": {"name": reference.name, "namespace": reference.namespace, "uid": reference.uid}}


def wait(
    cluster: Cluster,
    reference: JobReference,
    *,
    limits: Limits | None = None,
    listener: Listener | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Wait on this thread until the TrainJob has ended; see [Limits][] and [Listener][].

    Returns:
        How it ended, also when it failed: `outcome.raise_for_failure()` turns that into an error.

    Raises:
        WaitTimeout: a limit was reached.
        ClusterError: the cluster can't be asked any more (credentials, permissions); the job goes on.
    """
    inbox: queue.SimpleQueue[tuple[str, Change]] = queue.SimpleQueue()
    attendance = Attendance(cluster, reference, limits or Limits(), listener or Listener(), clock())
    try:
        attendance.open(lambda kind, change: inbox.put((kind, change)))
        decision = None
        while decision is None:
            try:
                kind, change = inbox.get(timeout=_next_look(attendance.vigil, clock()))
            except queue.Empty:
                decision = attendance.vigil.expire(clock())
                if decision is None and attendance.vigil.stuck:
                    attendance.look()
            else:
                decision = attendance.observe(kind, change, clock()) or attendance.vigil.expire(clock())
        return attendance.conclude(decision)
    finally:
        attendance.abandon()


async def wait_async(
    cluster: Cluster,
    reference: JobReference,
    *,
    limits: Limits | None = None,
    listener: Listener | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """[wait][] for an event loop, which is never blocked: reads happen on threads, changes come from shared watches.

    Cancelling it stops the waiting and leaves the job alone. The listener's callbacks for logs and progress come from
    other threads.
    """
    loop, inbox = asyncio.get_running_loop(), asyncio.Queue[tuple[str, Change]]()

    def deliver(kind: str, change: Change) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(inbox.put_nowait, (kind, change))

    attendance = await asyncio.to_thread(
        Attendance, cluster, reference, limits or Limits(), listener or Listener(), clock()
    )
    try:
        await asyncio.to_thread(attendance.open, deliver)
        decision = None
        while decision is None:
            try:
                kind, change = await asyncio.wait_for(inbox.get(), _next_look(attendance.vigil, clock()))
            except asyncio.TimeoutError:
                decision = attendance.vigil.expire(clock())
                if decision is None and attendance.vigil.stuck:
                    await asyncio.to_thread(attendance.look)
            else:
                decision = attendance.observe(kind, change, clock()) or attendance.vigil.expire(clock())
        return await asyncio.to_thread(attendance.conclude, decision)
    finally:
        attendance.abandon()


def _next_look(vigil: Vigil, now: float) -> float | None:
    """Seconds until time itself matters: a limit, or a look at why the job does not get going."""
    patience = vigil.patience(now)
    if not vigil.stuck:
        return patience
    return _EVIDENCE_EVERY if patience is None else min(patience, _EVIDENCE_EVERY)
