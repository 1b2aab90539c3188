"""Failures of the containers of a TrainJob's pods, and reasons why a pod does not start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainjob.status.reading import number, rows, table, text, true_conditions

JOBSET_LABEL = "jobset.sigs.k8s.io/jobset-name"
STEP_LABEL = "jobset.sigs.k8s.io/replicatedjob-name"
RANK_LABEL = "batch.kubernetes.io/job-completion-index"
# Ordinary reasons of a pod that is about to start; they are no problems.
_ORDINARY_WAITING = frozenset({"ContainerCreating", "PodInitializing"})


@dataclass(frozen=True)
class ContainerFailure:
    """A container that ended with an error.

    Attributes:
        pod: name of the pod.
        step: replicated job, such as `node` or `dataset-initializer`.
        rank: completion index of the pod, counted from 0.
        container: name of the container.
        exit_code: 1-255; 137 after SIGKILL; None if the pod was ended before its containers reported anything.
        reason: reason such as `Error` or `OOMKilled`. If the pod itself was ended, the reason for that (`Evicted`,
            `PreemptionByScheduler`).
        count: number of failures of this container in this pod, including the latest.
        message: the kubelet's message, such as why the command could not start; often empty.
        restarted: whether a later run of the container runs or waits, so that the logs are those of the previous run.
    """

    pod: str
    step: str
    rank: int
    container: str
    exit_code: int | None
    reason: str
    count: int
    message: str
    restarted: bool


def failures(pods: Iterable[Mapping[str, Any]]) -> list[ContainerFailure]:
    """Return the failed containers of these pods, the earliest to end first.

    Ends are known to the second. Within one second, pods that were deleted come last. The Job controller deletes the
    other pods when one has failed, and they may end with an error of their own on SIGTERM. This does not apply to pods
    that were disrupted.

    A container that was restarted in place counts with its last failure. With stock runtimes, a failing script shows up
    nowhere else until the Job gives up and deletes the pod. If several pods of one rank replaced one another, only the
    last failed pod counts, because its predecessors were replaced.
    """
    found = [(pod, ended, failure) for pod in pods for ended, failure in _failures_of(pod)]
    last: dict[tuple[str, int], str] = {}
    for pod, _, failure in found:
        rank = failure.step, failure.rank
        last[rank] = max(last.get(rank, ""), _created(pod))
    counting = [
        (ended, _was_told_to_end(pod), failure.step, failure.rank, failure)
        for pod, ended, failure in found
        if _created(pod) == last[failure.step, failure.rank]
    ]
    return [failure for *_, failure in sorted(counting, key=lambda item: item[:-1])]


def _was_told_to_end(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod was deleted, and not for a reason of its own."""
    return bool(text(pod, "metadata", "deletionTimestamp")) and _why_ended(pod) == ("", "")


def _created(pod: Mapping[str, Any]) -> str:
    return text(pod, "metadata", "creationTimestamp")


def _failures_of(pod: Mapping[str, Any]) -> Iterator[tuple[str, ContainerFailure]]:
    status, (why, said) = table(pod, "status"), _why_ended(pod)
    failed = False
    for container in container_statuses(pod):
        current, previous = table(container, "state", "terminated"), table(container, "lastState", "terminated")
        ended = current if number(current, "exitCode") else previous
        if not number(ended, "exitCode") or (current and not number(current, "exitCode")):
            continue
        failed = True
        yield (
            text(ended, "finishedAt"),
            ContainerFailure(
                pod=text(pod, "metadata", "name"),
                step=step_of(pod),
                rank=rank_of(pod),
                container=text(container, "name"),
                exit_code=number(ended, "exitCode"),
                reason=why or text(ended, "reason") or "Error",
                count=number(container, "restartCount") + (1 if ended is current else 0),
                message=said or text(ended, "message"),
                restarted=ended is not current,
            ),
        )
    if why and not failed and text(status, "phase") == "Failed":
        where = text(pod, "metadata", "name"), step_of(pod), rank_of(pod)
        yield "", ContainerFailure(*where, "", None, why, 1, said, restarted=False)


def _why_ended(pod: Mapping[str, Any]) -> tuple[str, str]:
    """Return reason and message of a pod that was ended from outside.

    Both are empty if the pod's containers ended by themselves. The kubelet writes them into the status. The scheduler,
    the API server's evictions, the taint manager and the garbage collector write only the condition DisruptionTarget
    (Kubernetes 1.36).
    """
    status, disruption = table(pod, "status"), true_conditions(pod).get("DisruptionTarget", {})
    if reason := text(status, "reason"):
        return reason, text(status, "message")
    return text(disruption, "reason"), text(disruption, "message")


def pending_reasons(pods: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the reasons why pods do not run, as one sentence each.

    A sentence is about a container that waits for a reason, or about an unschedulable pod.
    """
    return [
        f"{step_of(pod)}-{rank_of(pod)}: {reason}: {message}".rstrip(": ")
        for pod in pods
        for reason, message in waiting_for(pod)
    ]


def waiting_for(pod: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield reason and message of each problem that keeps a pod from running.

    The problems are those of the scheduler and of each waiting container.
    """
    for condition in rows(pod, "status", "conditions"):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            yield text(condition, "reason"), text(condition, "message")
    for container in container_statuses(pod):
        waiting = table(container, "state", "waiting")
        reason = text(waiting, "reason")
        if reason and reason not in _ORDINARY_WAITING:
            yield reason, text(waiting, "message")


def step_of(pod: Mapping[str, Any]) -> str:
    """Return the replicated job of a pod, such as `node`."""
    return text(pod, "metadata", "labels", STEP_LABEL)


def rank_of(pod: Mapping[str, Any]) -> int:
    """Return a pod's rank in its replicated job, counted from 0.

    The rank is also 0 if the label is not a number, because any user may create a pod with these labels.
    """
    return number(pod, "metadata", "labels", RANK_LABEL)


def restarts_in_place(pod: Mapping[str, Any]) -> bool:
    """Return whether the kubelet restarts a failed container of this pod.

    It does so with every `restartPolicy` other than `Never`.
    """
    return text(pod, "spec", "restartPolicy") != "Never"


def claims_of(pod: Mapping[str, Any]) -> list[str]:
    """Return the names of the PersistentVolumeClaims that a pod mounts."""
    claims = [text(volume, "persistentVolumeClaim", "claimName") for volume in rows(pod, "spec", "volumes")]
    return [name for name in claims if name]


def container_statuses(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the statuses of a pod's containers, init containers first."""
    return [*rows(pod, "status", "initContainerStatuses"), *rows(pod, "status", "containerStatuses")]
