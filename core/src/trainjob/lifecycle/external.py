"""Wait for a TrainJob that another caller created, by its name or by its run key.

The wait never changes the TrainJob. All these waits in one namespace share one informer for all TrainJobs. It has no
label selector, because TrainJobs created with kubectl or the Kubeflow SDK do not have our labels, and any TrainJob may
lose them. Pods, logs and events are read only at the end, as evidence.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from trainjob.client import Cluster, ObjectEvent
from trainjob.errors import InvalidSpec, Problem, WaitTimeout
from trainjob.lifecycle.async_inbox import AsyncInbox
from trainjob.lifecycle.delivery import mark_exported
from trainjob.lifecycle.end_checks import check_after_end
from trainjob.lifecycle.evidence import collect_evidence, list_final_pods
from trainjob.lifecycle.identity import JobReference, RunKey, is_attempt_of
from trainjob.lifecycle.job_search import list_labelled_jobs, list_unlabelled_jobs
from trainjob.lifecycle.submission import reference_to
from trainjob.lifecycle.wait_policy import KillAction, Limits
from trainjob.status import Outcome, Phase, Verdict, build_outcome, derive_verdict
from trainjob.status.failure_rules import NO_RESERVATION
from trainjob.status.nested_fields import get_str
from trainjob.status.verdict import check_end
from trainjob.threads import run_on_executor

_VALID_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")  # a DNS subdomain (Kubernetes 1.36)
_READ_ONLY = Limits(max_restarts=None, on_timeout=KillAction.KEEP, on_failure=KillAction.KEEP)


@dataclass(frozen=True)
class JobSelector:
    """Selector of the TrainJob to wait for, by its name or by its run key.

    The TrainJob need not exist yet.

    Attributes:
        namespace: namespace of the TrainJob.
        name: its name; empty with a run key.
        run_key: its run key, which selects the newest attempt; None with a name.

    Raises:
        InvalidSpec: neither or both of name and run key are given, or name or namespace are invalid in Kubernetes.
    """

    namespace: str
    name: str = ""
    run_key: RunKey | None = None

    def __post_init__(self) -> None:
        if bool(self.name) == (self.run_key is not None):
            given = "both omitted" if self.run_key is None else "both given"
            raise InvalidSpec(Problem("name, run_key", given, "give exactly one of them; it must not be empty"))
        for field, value in (("name", self.name or "unnamed"), ("namespace", self.namespace)):
            if not _VALID_NAME.fullmatch(value):
                allowed = "allowed are lower-case letters, digits, '-' and '.', with a letter or digit at both ends"
                raise InvalidSpec(Problem(field, repr(value), allowed))

    def __str__(self) -> str:
        if self.run_key is None:
            return f"{self.namespace}/{self.name}"
        key = self.run_key
        index = f"[{key.map_index}]" if key.map_index else ""
        return f"of {key.engine} {key.workflow}.{key.task}{index} in run {key.run} in namespace {self.namespace}"

    def matches(self, job: Mapping[str, Any]) -> bool:
        """Return whether a TrainJob of the namespace has the name or the run key."""
        if self.run_key is None:
            return get_str(job, "metadata", "name") == self.name
        return is_attempt_of(job, self.run_key)


@dataclass(frozen=True)
class FinishedJob:
    """Reference to a finished TrainJob, and its outcome."""

    reference: JobReference
    outcome: Outcome


def check_external(
    cluster: Cluster, selector: JobSelector, report: Callable[[str], None] = lambda _: None
) -> FinishedJob | None:
    """Return the selected TrainJob if it has finished, else None (blocking I/O).

    Args:
        cluster: the cluster of the TrainJob.
        selector: selector of the TrainJob.
        report: called with one line on the TrainJob's phase, if it has not finished or does not exist.

    Returns:
        The TrainJob and its outcome; None while it has not finished, or if it does not exist yet.

    Raises:
        NotFound: Kubeflow Trainer is not installed.
        ClusterError: a request failed or was denied.
    """
    job = _get_newest_attempt(cluster, selector)
    if job is None:
        cluster.trainjob_spec_fields()  # raises if there is no Trainer; read once per process
        report(_format_missing(selector))
        return None
    verdict = derive_verdict(job)
    if _is_final(verdict):
        return _conclude_job(cluster, job, verdict)
    report(_format_status(job, verdict))
    return None


async def wait_external(
    cluster: Cluster,
    selector: JobSelector,
    *,
    timeout: timedelta | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> FinishedJob:
    """Wait until the selected TrainJob has finished, also if it does not exist yet.

    The event loop is never blocked.

    Args:
        cluster: the cluster of the TrainJob.
        selector: selector of the TrainJob.
        timeout: limit on the wait; None means no limit.
        report: called with one line whenever the phase, its reason or its message has changed.

    Returns:
        The TrainJob and its outcome, also if it failed. The outcome of a deleted TrainJob is Deleted, unless a newer
        TrainJob matches the selector.

    Raises:
        WaitTimeout: the limit was reached; the TrainJob continues to run.
        ClusterError: no request can succeed any more (credentials, permissions, no Trainer).
    """
    loop, inbox = asyncio.get_running_loop(), AsyncInbox[ObjectEvent]()
    deadline = None if timeout is None else loop.time() + timeout.total_seconds()
    last_line = _format_missing(selector)

    def deliver(event: ObjectEvent) -> None:
        if event.object is None or selector.matches(event.object):
            inbox.put(event)

    # Not called on a thread: it does not block, and a cancellation during the call would leave the handler behind.
    with cluster.trainjob_informer(selector.namespace, "").add_event_handler(selector.name or None, deliver):
        while True:
            remaining = None if deadline is None else max(0.0, deadline - loop.time())
            event = await inbox.get(remaining)
            if event is None:
                check = partial(check_external, cluster, selector)
                if finished := await run_on_executor(cluster.outcome_executor, check):
                    return finished
                raise WaitTimeout(f"{last_line}; the wait for it timed out")
            job, verdict = _judge_event(event)
            if verdict.phase.finished:
                conclude = partial(_conclude_unless_superseded, cluster, selector, job, verdict)
                if finished := await run_on_executor(cluster.outcome_executor, conclude):
                    return finished
            elif (line := _format_status(job, verdict)) != last_line:
                last_line = line
                report(line)


def _format_missing(selector: JobSelector) -> str:
    return f"there is no TrainJob {selector} yet"


def _judge_event(event: ObjectEvent) -> tuple[Mapping[str, Any], Verdict]:
    if event.error is not None or event.object is None:
        raise event.error or AssertionError("an event without an object has an error")
    verdict = derive_verdict(event.object)
    return event.object, derive_verdict(None) if event.deleted and not verdict.phase.finished else verdict


def _conclude_unless_superseded(
    cluster: Cluster, selector: JobSelector, job: Mapping[str, Any], verdict: Verdict
) -> FinishedJob | None:
    """Return the outcome of a finished or deleted TrainJob, or of a newer attempt.

    It is None if the newer attempt has not finished, or if a TrainJob that was reported as deleted exists, because a
    list of the API server was incomplete.
    """
    meta = job["metadata"]
    if newest := _get_newest_attempt(cluster, selector) or cluster.get_trainjob(meta["name"], meta["namespace"]):
        job, verdict = newest, derive_verdict(newest)
    return _conclude_job(cluster, job, verdict) if _is_final(verdict) else None


def _is_final(verdict: Verdict) -> bool:
    """Return whether a TrainJob has finished, and no attempt with fewer nodes follows."""
    return verdict.phase.finished and verdict.reason != NO_RESERVATION


def _get_newest_attempt(cluster: Cluster, selector: JobSelector) -> Mapping[str, Any] | None:
    if selector.run_key is None:
        return cluster.get_trainjob(selector.name, selector.namespace)
    wanted = cluster, selector.run_key, selector.namespace
    attempts = list_labelled_jobs(*wanted) or list_unlabelled_jobs(*wanted)
    return max(attempts, key=lambda job: (reference_to(job, adopted=True).attempt, _creation_time(job)), default=None)


def _creation_time(job: Mapping[str, Any]) -> str:
    return str(job["metadata"].get("creationTimestamp", ""))


def _conclude_job(cluster: Cluster, job: Mapping[str, Any], verdict: Verdict) -> FinishedJob:
    """Return the outcome of a finished TrainJob of another caller; nothing is changed."""
    pods = list_final_pods(cluster, job)
    verdict = check_end(verdict, job, pods.existing)
    if verdict.phase is Phase.COMPLETE:
        mark_exported(cluster, job)
    reference, evidence = reference_to(job, adopted=True), collect_evidence(cluster, job, verdict, pods)
    warnings = check_after_end(cluster, reference, _READ_ONLY, job, verdict, pods.existing, evidence.jobset)
    return FinishedJob(reference, build_outcome(job, verdict, evidence, warnings=warnings))


def _format_status(job: Mapping[str, Any], verdict: Verdict) -> str:
    return f"TrainJob {job['metadata']['namespace']}/{job['metadata']['name']}: {verdict}"
