"""What a TrainJob's pods say: which container failed how, and why a pod does not start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

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
        exit_code: 1-255; 137 after SIGKILL.
        reason: such as `Error` or `OOMKilled`; the pod's own reason (`Evicted`) where it has one.
        count: how often this container has failed in this pod, the latest included.
        message: what the kubelet says about it, such as why the command could not start; often empty.
        restarted: a later instance of the container runs or waits, so the logs are those of the previous one.
    """

    pod: str
    step: str
    rank: int
    container: str
    exit_code: int
    reason: str
    count: int
    message: str
    restarted: bool


def failures(pods: Iterable[Mapping[str, Any]]) -> list[ContainerFailure]:
    """The failed containers of these pods, the earliest to end first.

    A container that was restarted in place counts with its last failure: with stock runtimes a failing script shows up
    nowhere else until the Job gives up and deletes the pod.
    """
    found = [(ended, failure) for pod in pods for ended, failure in _failures_of(pod)]
    return [failure for _, failure in sorted(found, key=lambda item: (item[0], item[1].step, item[1].rank))]


def _failures_of(pod: Mapping[str, Any]) -> Iterator[tuple[str, ContainerFailure]]:
    status = pod.get("status") or {}
    for container in _container_statuses(status):
        current = (container.get("state") or {}).get("terminated") or {}
        previous = (container.get("lastState") or {}).get("terminated") or {}
        ended = current if current.get("exitCode") else previous
        if not ended.get("exitCode") or (current and not current.get("exitCode")):
            continue
        yield (
            ended.get("finishedAt") or "",
            ContainerFailure(
                pod=pod["metadata"]["name"],
                step=step_of(pod),
                rank=rank_of(pod),
                container=container["name"],
                exit_code=int(ended["exitCode"]),
                reason=status.get("reason") or ended.get("reason") or "Error",
                count=int(container.get("restartCount") or 0) + (1 if ended is current else 0),
                message=status.get("message") or ended.get("message") or "",
                restarted=ended is not current,
            ),
        )


def pending_reasons(pods: Iterable[Mapping[str, Any]]) -> list[str]:
    """Why pods do not run: one sentence for each container that waits for a reason, and each unschedulable pod."""
    return [reason for pod in pods for reason in _pending_reasons_of(pod)]


def _pending_reasons_of(pod: Mapping[str, Any]) -> Iterator[str]:
    where, status = f"{step_of(pod)}-{rank_of(pod)}", pod.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            yield f"{where}: {condition.get('reason', '')}: {condition.get('message', '')}"
    for container in _container_statuses(status):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") and waiting["reason"] not in _ORDINARY_WAITING:
            yield f"{where}: {waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")


def step_of(pod: Mapping[str, Any]) -> str:
    """The replicated job a pod belongs to, such as `node`."""
    return str((pod["metadata"].get("labels") or {}).get(STEP_LABEL, ""))


def rank_of(pod: Mapping[str, Any]) -> int:
    """A pod's rank in its replicated job, counted from 0."""
    return int((pod["metadata"].get("labels") or {}).get(RANK_LABEL) or 0)


def restarts_in_place(pod: Mapping[str, Any]) -> bool:
    """Whether the kubelet restarts a failed container of this pod (anything but `restartPolicy: Never`)."""
    return (pod.get("spec") or {}).get("restartPolicy") != "Never"


def _container_statuses(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
