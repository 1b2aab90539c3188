"""What a TrainJob's pods say: which container failed how, and why a pod does not start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainjob.status.reading import number, rows, table, text, true_conditions

JOBSET_LABEL = "jobset.sigs.k8s.io/jobset-name"
STEP_LABEL = "jobset.sigs.k8s.io/replicatedjob-name"
RANK_LABEL = "batch.kubernetes.io/job-completion-index"
# A pod that never ran for these reasons is only on its way, not in trouble.
_ORDINARY_WAITING = frozenset({"ContainerCreating", "PodInitializing"})


@dataclass(frozen=True)
class ContainerFailure:
    """A container that ended with an error.

    Attributes:
        pod: the pod's name.
        step: the replicated job, such as `node` or `dataset-initializer`.
        rank: the pod's completion index, counted from 0.
        container: the container's name.
        exit_code: 1-255; 137 after SIGKILL; None when the pod was ended before its containers said anything.
        reason: such as `Error` or `OOMKilled`; why the pod itself was ended (`Evicted`, `PreemptionByScheduler`) where
            it was.
        count: how often this container has failed in this pod, the latest included.
        message: what the kubelet says about it, such as why the command could not start; often empty.
        restarted: a later instance of the container runs or waits, so the logs are those of the previous one.
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
    """The failed containers of these pods, the earliest to end first.

    Ends are known to the second. Of one second, pods that were deleted come last: the Job controller deletes the others
    when one has failed, and they may end with an error of their own on SIGTERM. Not so what was disrupted.

    A container that was restarted in place counts with its last failure: with stock runtimes a failing script shows up
    nowhere else until the Job gives up and deletes the pod. Of several pods of one rank, which replaced one another,
    only the last one that failed counts: what became of the others was mended.
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
    """Deleted, and not for a reason of its own."""
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
    """Reason and message of a pod that was ended from outside; empty for one whose containers ended by themselves.

    The kubelet writes it into the status; the scheduler, the API server's evictions, the taint manager and the garbage
    collector only into the condition DisruptionTarget (Kubernetes 1.36).
    """
    status, disruption = table(pod, "status"), true_conditions(pod).get("DisruptionTarget", {})
    if reason := text(status, "reason"):
        return reason, text(status, "message")
    return text(disruption, "reason"), text(disruption, "message")


def pending_reasons(pods: Iterable[Mapping[str, Any]]) -> list[str]:
    """Why pods do not run: one sentence for each container that waits for a reason, and each unschedulable pod."""
    return [
        f"{step_of(pod)}-{rank_of(pod)}: {reason}: {message}".rstrip(": ")
        for pod in pods
        for reason, message in waiting_for(pod)
    ]


def waiting_for(pod: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Reason and message of what keeps a pod from running: of the scheduler, and of each container that waits."""
    for condition in rows(pod, "status", "conditions"):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            yield text(condition, "reason"), text(condition, "message")
    for container in container_statuses(pod):
        waiting = table(container, "state", "waiting")
        reason = text(waiting, "reason")
        if reason and reason not in _ORDINARY_WAITING:
            yield reason, text(waiting, "message")


def step_of(pod: Mapping[str, Any]) -> str:
    """The replicated job a pod belongs to, such as `node`."""
    return text(pod, "metadata", "labels", STEP_LABEL)


def rank_of(pod: Mapping[str, Any]) -> int:
    """A pod's rank in its replicated job, counted from 0, which is also that of a pod with something else there.

    Anybody may make a pod with these labels.
    """
    return number(pod, "metadata", "labels", RANK_LABEL)


def restarts_in_place(pod: Mapping[str, Any]) -> bool:
    """Whether the kubelet restarts a failed container of this pod (anything but `restartPolicy: Never`)."""
    return text(pod, "spec", "restartPolicy") != "Never"


def claims_of(pod: Mapping[str, Any]) -> list[str]:
    """The names of the PersistentVolumeClaims that a pod mounts."""
    claims = [text(volume, "persistentVolumeClaim", "claimName") for volume in rows(pod, "spec", "volumes")]
    return [name for name in claims if name]


def container_statuses(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What the kubelet says of a pod's containers, those that initialize first."""
    return [*rows(pod, "status", "initContainerStatuses"), *rows(pod, "status", "containerStatuses")]
