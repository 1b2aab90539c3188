"""Phase of a TrainJob, derived from its status or its pods.

A TrainJob has only the conditions `Suspended`, `Complete` and `Failed` (Trainer 2.3, pkg/apis/trainer/v1alpha1).
Whether it is running, starting or initializing has to be derived from `status.jobsStatus`. The counters there count
replicated Jobs, not pods. Trainer 2.0 never fills them; then the phase is derived from the pods.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from trainjob.status.failed_mark import read_failed_mark
from trainjob.status.failure_rules import EARLIER_JOBSET
from trainjob.status.nested_fields import get_int, get_list, get_mapping, get_str, true_conditions
from trainjob.status.pods import NODE, step_of

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_MULTIKUEUE = "kueue.x-k8s.io/multikueue"
# The launcher of an MPI runtime starts the training on the nodes, which are ready before it (Trainer 2.3, plugins/mpi).
_LAUNCHER = "launcher"
INITIALIZERS = ("dataset-initializer", "model-initializer")
# JobSet's text in its condition, which the TrainJob gets, too (JobSet 0.12, pkg/controllers/failure_policy.go).
_FIRST_FAILED_JOB = re.compile(r"\(first failed job: (?P<job>[a-z0-9.-]+)\)")
_COUNTERS = ("active", "ready", "succeeded", "failed", "suspended")


class Phase(str, Enum):
    """Phase in the life of a TrainJob."""

    PENDING = "Pending"
    """Accepted; no Job exists yet."""
    QUEUED = "Queued"
    """Suspended with a Kueue queue; waits for quota."""
    SUSPENDED = "Suspended"
    INITIALIZING = "Initializing"
    """A dataset or model initializer is running."""
    STARTING = "Starting"
    """The training pods exist and are not all ready."""
    RUNNING = "Running"
    COMPLETE = "Complete"
    FAILED = "Failed"
    DELETED = "Deleted"
    """Deleted, or being deleted; the TrainJob can no longer succeed."""

    @property
    def finished(self) -> bool:
        """Whether no other phase can follow."""
        return self in (Phase.COMPLETE, Phase.FAILED, Phase.DELETED)


@dataclass(frozen=True)
class Verdict:
    """Phase of a TrainJob with its reason.

    Attributes:
        phase: phase of the TrainJob.
        reason: reason of the condition, or of this project if the API has none.
        message: message of the condition, or of this project.
        step: replicated job that is running, or that failed first; empty if there is none.
    """

    phase: Phase
    reason: str = ""
    message: str = ""
    step: str = ""

    def __str__(self) -> str:
        details = ": ".join(part for part in (self.reason, self.message) if part)
        step = f" [{self.step}]" if self.step else ""
        return f"{self.phase.value}{step}" + (f" ({details})" if details else "")


def derive_verdict(job: Mapping[str, Any] | None, pods: Iterable[Mapping[str, Any]] = ()) -> Verdict:
    """Return the phase of a TrainJob with its reason.

    The first of these that applies decides:

    1. A true `Failed` or `Complete`, because a TrainJob keeps its other conditions when it is resumed, or suspended
       after its end.
    2. A deletion.
    3. The annotation of a TrainJob that this project ended as failed and retained.
    4. `Suspended`.
    5. The counters, or the pods if there are no counters.

    Args:
        job: the TrainJob as the API returns it; None if it no longer exists.
        pods: known pods of the TrainJob.
    """
    if job is None:
        return Verdict(Phase.DELETED, "NotFound", "the TrainJob no longer exists")
    true = true_conditions(job)
    for phase in (Phase.FAILED, Phase.COMPLETE):
        if condition := true.get(phase.value):
            return _finished_verdict(phase, condition, job)
    if get_mapping(job, "metadata").get("deletionTimestamp"):
        return Verdict(Phase.DELETED, "BeingDeleted", "the TrainJob is being deleted")
    if mark := read_failed_mark(job):
        return Verdict(Phase.FAILED, mark["reason"], get_str(mark, "message"), get_str(mark, "step"))
    if "Suspended" in true or get_mapping(job, "spec").get("suspend"):
        return _suspended_verdict(true.get("Suspended", {}), job)
    if jobs := get_list(job, "status", "jobsStatus"):
        return _verdict_from_counters({get_str(job_status, "name"): job_status for job_status in jobs})
    if get_str(job, "spec", "managedBy") == _MULTIKUEUE:
        return Verdict(
            Phase.PENDING,
            "ManagedElsewhere",
            "MultiKueue runs the TrainJob on another cluster, which has not reported its status yet",
        )
    return _verdict_from_pods(job, pods)


def had_pods(job: Mapping[str, Any]) -> bool:
    """Return whether pods of a TrainJob have run, as far as its status reports it."""
    counted = get_list(job, "status", "jobsStatus")
    return Phase.COMPLETE.value in true_conditions(job) or any(
        get_int(counts, counter) for counts in counted for counter in ("ready", "succeeded", "failed")
    )


def check_end(verdict: Verdict, job: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> Verdict:
    """Return the verdict, or a failure if the end is that of another TrainJob's JobSet.

    The Trainer finds a JobSet by its name. If the JobSet of a deleted TrainJob still exists, a new TrainJob of that
    name gets its end, with the time (Trainer 2.0 to 2.3). It may never run, or run later. Such an end is older than the
    TrainJob. Because the clocks of a cluster may differ, the TrainJob must also have no pods. MultiKueue copies the
    times of another cluster, and the pods are there.

    Args:
        verdict: verdict of a finished TrainJob.
        job: the TrainJob.
        pods: its pods, without those that are older than the TrainJob.
    """
    condition, created = true_conditions(job).get(verdict.phase.value), get_str(job, "metadata", "creationTimestamp")
    ended = get_str(condition, "lastTransitionTime")
    if not ended or ended >= created or any(pods) or get_str(job, "spec", "managedBy") == _MULTIKUEUE:
        return verdict
    message = (
        f"the TrainJob was created at {created} and reports an end at {ended}, which is that of the JobSet of a "
        "deleted TrainJob with the same name"
    )
    return Verdict(Phase.FAILED, EARLIER_JOBSET, message)


def _finished_verdict(phase: Phase, condition: Mapping[str, Any], job: Mapping[str, Any]) -> Verdict:
    message = get_str(condition, "message")
    step = ""
    if phase is Phase.FAILED and (found := _FIRST_FAILED_JOB.search(message)):
        # `<trainjob>-<replicated job>-<index>`; the index is always 0 in Trainer.
        step = found["job"].removeprefix(get_str(job, "metadata", "name") + "-").rpartition("-")[0]
    return Verdict(phase, get_str(condition, "reason"), message, step)


def _suspended_verdict(condition: Mapping[str, Any], job: Mapping[str, Any]) -> Verdict:
    if queue := get_str(job, "metadata", "labels", QUEUE_LABEL):
        return Verdict(Phase.QUEUED, "WaitingForQuota", f"waiting for quota in queue {queue}")
    return Verdict(Phase.SUSPENDED, get_str(condition, "reason") or "Suspended", get_str(condition, "message"))


def _verdict_from_counters(jobs: Mapping[str, Mapping[str, Any]]) -> Verdict:
    def count(name: str, counter: str) -> int:
        return get_int(jobs.get(name), counter)

    for name in INITIALIZERS:
        if count(name, "active"):
            return Verdict(Phase.INITIALIZING, step=name)
    training_jobs = _training_jobs(jobs)
    for phase, counter in ((Phase.RUNNING, "ready"), (Phase.STARTING, "active")):
        for name in training_jobs:
            if count(name, counter):
                return Verdict(phase, step=name)
    if any(count(name, counter) for name in jobs for counter in _COUNTERS):
        return Verdict(Phase.STARTING)
    return Verdict(Phase.PENDING)


def _training_jobs(names: Iterable[str]) -> list[str]:
    """Return the replicated jobs that have to be ready when the training runs."""
    found = [name for name in names if name not in INITIALIZERS]
    return [_LAUNCHER] if _LAUNCHER in found else found


def _verdict_from_pods(job: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> Verdict:
    """Derive the verdict from the pods, because there are no counters."""
    phases: dict[str, list[str]] = {}
    for pod in pods:
        if not get_mapping(pod, "metadata").get("deletionTimestamp"):
            phases.setdefault(step_of(pod), []).append(_pod_phase(pod))
    for name in INITIALIZERS:
        if {"Pending", "Running", "Ready"} & set(phases.get(name, ())):
            return Verdict(Phase.INITIALIZING, step=name)
    num_nodes = get_int(job, "spec", "trainer", "numNodes") or 1
    training_jobs = _training_jobs(phases)
    for name in training_jobs:
        if sum(phase in ("Ready", "Succeeded") for phase in phases[name]) >= (num_nodes if name == NODE else 1):
            return Verdict(Phase.RUNNING, step=name)
    return Verdict(Phase.STARTING if phases else Phase.PENDING, step=next(iter(training_jobs), ""))


def _pod_phase(pod: Mapping[str, Any]) -> str:
    """Return the pod's phase, or `Ready` if the pod is ready."""
    return "Ready" if "Ready" in true_conditions(pod) else get_str(pod, "status", "phase") or "Pending"
