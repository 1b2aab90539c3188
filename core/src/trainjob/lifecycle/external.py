"""Waiting for a TrainJob that somebody else made: by its name, or by who asked for it.

Nothing is done to it, whatever happens. All who wait by name in one namespace share one list+watch of everybody's
TrainJobs, as those made with kubectl or the Kubeflow SDK carry no label of ours; who waits by run key shares the watch
of those who wait for their own. Pods, logs and events are read at the end only, as evidence.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from trainjob.client import Cluster, ObjectEvent, SharedInformer
from trainjob.errors import InvalidSpec, Problem, WaitTimeout
from trainjob.lifecycle.identity import JobReference, RunKey
from trainjob.lifecycle.queues import get_async
from trainjob.lifecycle.submission import reference_to
from trainjob.lifecycle.wait_policy import Limits, OnTimeout, WaitResult
from trainjob.lifecycle.wait_session import Listener, WaitSession
from trainjob.manifest import labels
from trainjob.status import Outcome, Verdict, judge

_EVERYBODYS = ""  # the label selector
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")  # a DNS subdomain (Kubernetes 1.36)
_HANDS_OFF = Limits(max_restarts=None, on_timeout=OnTimeout.KEEP)


@dataclass(frozen=True)
class JobSelector:
    """Which TrainJob is waited for; it need not exist yet, but its name must be one that can.

    Attributes:
        namespace: where.
        name: its name; empty with a run key.
        run_key: who asked for it; of its attempts, the newest counts. None with a name.
    """

    namespace: str
    name: str = ""
    run_key: RunKey | None = None

    def __post_init__(self) -> None:
        if bool(self.name) == (self.run_key is not None):
            given = "neither is given" if self.run_key is None else "both are given"
            raise InvalidSpec(Problem("name, run_key", given, "give one of them, and not an empty one"))
        for field, value in (("name", self.name or "unnamed"), ("namespace", self.namespace)):
            if not _NAME.fullmatch(value):
                allowed = "allowed are lower-case letters, digits, '-' and '.', a letter or digit at both ends"
                raise InvalidSpec(Problem(field, repr(value), allowed))

    def __str__(self) -> str:
        if self.run_key is None:
            return f"{self.namespace}/{self.name}"
        key = self.run_key
        index = f"[{key.map_index}]" if key.map_index else ""
        return f"of {key.engine} {key.workflow}.{key.task}{index} in run {key.run} in namespace {self.namespace}"

    def is_met_by(self, job: Mapping[str, Any]) -> bool:
        """Whether a TrainJob of the namespace is it, or one of its attempts."""
        meta = job["metadata"]
        if self.run_key is None:
            return bool(meta["name"] == self.name)
        return bool((meta.get("labels") or {}).get(labels.RUN_KEY) == self.run_key.digest)


@dataclass(frozen=True)
class FinishedJob:
    """The TrainJob that was waited for, and how it ended."""

    reference: JobReference
    outcome: Outcome


def check_external(
    cluster: Cluster, wanted: JobSelector, tell: Callable[[str], None] = lambda _: None
) -> FinishedJob | None:
    """Look once (blocking IO).

    Args:
        cluster: where.
        wanted: which.
        tell: takes a line on how it stands while it has not ended.

    Returns:
        None while it works, or does not exist yet.

    Raises:
        NotFound: Kubeflow Trainer is not installed.
        ClusterError: the cluster can't be asked.
    """
    job = _newest(cluster, wanted)
    if job is None:
        cluster.trainjob_spec_fields()  # there may be no Trainer to wait for; asked once for each process
        tell(_not_there(wanted))
        return None
    verdict = judge(job)
    if verdict.phase.finished:
        return _conclude(cluster, job, verdict)
    tell(_line(job, verdict))
    return None


async def wait_external(
    cluster: Cluster,
    wanted: JobSelector,
    *,
    total: timedelta | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> FinishedJob:
    """Wait until the TrainJob has ended, for one that does not exist yet, too; the event loop is never blocked.

    Args:
        cluster: where.
        wanted: which.
        total: the longest time to wait; None means for ever.
        tell: takes a line whenever the phase has changed.

    Returns:
        How it ended, also when it failed. One that is gone, with no newer one in its place, is Deleted.

    Raises:
        WaitTimeout: the time is over; the TrainJob goes on.
        ClusterError: the cluster can't be asked any more (credentials, permissions, no Trainer).
    """
    loop, inbox = asyncio.get_running_loop(), asyncio.Queue[ObjectEvent]()
    deadline = None if total is None else loop.time() + total.total_seconds()
    told = _not_there(wanted)

    def deliver(change: ObjectEvent) -> None:
        if (change.found is None or wanted.is_met_by(change.found)) and not loop.is_closed():
            loop.call_soon_threadsafe(inbox.put_nowait, change)

    # Not on a thread: it takes no time, and a cancellation meanwhile would leave the subscription behind.
    with _informer(cluster, wanted).add_event_handler(wanted.name or None, deliver):
        while True:
            left = None if deadline is None else max(0.0, deadline - loop.time())
            try:
                change = await get_async(inbox, left)
            except asyncio.TimeoutError:
                if ended := await asyncio.to_thread(check_external, cluster, wanted):
                    return ended
                raise WaitTimeout(f"{told}; the time to wait for it is over") from None
            job, verdict = _judged(change)
            if verdict.phase.finished:
                if ended := await asyncio.to_thread(_settle, cluster, wanted, job, verdict):
                    return ended
            elif (line := _line(job, verdict)) != told:
                told = line
                tell(line)


def _informer(cluster: Cluster, wanted: JobSelector) -> SharedInformer:
    if wanted.run_key is not None:  # then it is ours
        return cluster.trainjob_informer(wanted.namespace)
    return cluster.trainjob_informer(wanted.namespace, _EVERYBODYS)


def _not_there(wanted: JobSelector) -> str:
    return f"there is no TrainJob {wanted} yet"


def _judged(change: ObjectEvent) -> tuple[Mapping[str, Any], Verdict]:
    if change.error is not None or change.found is None:
        raise change.error or AssertionError("a change without an object is an error")
    verdict = judge(change.found)
    return change.found, judge(None) if change.gone and not verdict.phase.finished else verdict


def _settle(cluster: Cluster, wanted: JobSelector, job: Mapping[str, Any], verdict: Verdict) -> FinishedJob | None:
    """One has ended: it counts unless there is a newer one by now."""
    newest = _newest(cluster, wanted)
    if newest is None or newest["metadata"]["uid"] == job["metadata"]["uid"]:
        return _conclude(cluster, job, verdict)
    verdict = judge(newest)
    return _conclude(cluster, newest, verdict) if verdict.phase.finished else None


def _newest(cluster: Cluster, wanted: JobSelector) -> Mapping[str, Any] | None:
    if wanted.run_key is None:
        return cluster.get_trainjob(wanted.name, wanted.namespace)
    attempts = cluster.list_trainjobs(wanted.namespace, f"{labels.RUN_KEY}={wanted.run_key.digest}")
    return max(attempts, key=lambda job: (reference_to(job, adopted=True).attempt, _created(job)), default=None)


def _created(job: Mapping[str, Any]) -> str:
    return str(job["metadata"].get("creationTimestamp", ""))


def _conclude(cluster: Cluster, job: Mapping[str, Any], verdict: Verdict) -> FinishedJob:
    reference = reference_to(job, adopted=True)
    session = WaitSession(cluster, reference, _HANDS_OFF, Listener(), time.monotonic())
    session.policy.job = job  # also when it is gone by now
    try:
        return FinishedJob(reference, session.conclude(WaitResult(verdict)))
    finally:
        session.abandon()


def _line(job: Mapping[str, Any], verdict: Verdict) -> str:
    return f"TrainJob {job['metadata']['namespace']}/{job['metadata']['name']}: {verdict}"
