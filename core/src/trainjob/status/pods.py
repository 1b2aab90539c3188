"""Failures of the containers of a TrainJob's pods, and reasons why a pod does not start."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from trainjob.status.nested_fields import get_int, get_list, get_mapping, get_str, true_conditions

JOBSET_LABEL = "jobset.sigs.k8s.io/jobset-name"
STEP_LABEL = "jobset.sigs.k8s.io/replicatedjob-name"
RANK_LABEL = "batch.kubernetes.io/job-completion-index"
NODE = "node"
"""Name of the training's replicated job, and of its container, which MPI's launcher has too.

An initializer's container also has the name of its replicated job (Trainer 2.3, plugins/jobset/builder.go).
"""
_STATUS_FIELDS = ("name", "restartCount", "state", "lastState")
# kube-scheduler 1.36 appends the result of the preemption to a message about a claim.
_NO_PREEMPTION = re.compile(r"(nodes are available: .*)\. not found\Z", re.DOTALL)
# Reasons of a pod that is about to start. They are no problems. Only the laptop cluster adds a message: it creates the
# environment that replaces the image, which may take minutes.
_NORMAL_WAITING_REASONS = frozenset({"ContainerCreating", "PodInitializing"})
# Reasons of a container whose end nobody observed, because its node or the container runtime restarted: containerd 2
# (internal/cri/server/restart.go, with exit code 255), and the kubelet (Kubernetes 1.36, with exit code 137).
_LOST_REASONS = frozenset({"Unknown", "ContainerStatusUnknown"})


@dataclass(frozen=True)
class ContainerFailure:
    """A container that ended with an error.

    Attributes:
        pod: name of the pod.
        step: replicated job, such as `node` or `dataset-initializer`.
        rank: completion index of the pod, counted from 0.
        container: name of the container.
        exit_code: 1-255; 137 after SIGKILL; None if the pod was ended before its containers reported anything.
        reason: reason such as `Error` or `OOMKilled`. If the pod itself was ended, its reason, such as `Evicted` or
            `PreemptionByScheduler`.
        count: number of failures of this container in this pod, including the latest.
        message: the kubelet's message, such as why the command could not start; often empty.
        restarted: whether a later run of the container has begun, so that the logs are those of the previous run.
        ended: RFC 3339 time at which the container ended; empty if it never ran.
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
    ended: str = ""

    @property
    def lost(self) -> bool:
        """Whether the container was lost when its node restarted; its command did not fail."""
        return self.reason in _LOST_REASONS


def find_failures(pods: Iterable[Mapping[str, Any]]) -> list[ContainerFailure]:
    """Return the failed containers of these pods, the earliest end first.

    The times have whole seconds. Within one second, pods that were deleted come last. The Job controller deletes the
    other pods when one has failed, and they may end with an error of their own on SIGTERM. This does not apply to pods
    that were disrupted.

    A container that was restarted in place counts with its last failure. With stock runtimes, a failing script shows up
    nowhere else until the Job gives up and deletes the pod. Sidecars never count. If several pods of one rank replaced
    one another, only the last failed pod counts, because its predecessors were replaced. A pod that was disrupted
    before another rank failed comes first, because it is the cause.
    """
    pods = list(pods)
    found = [_PodFailure(pod, failure) for pod in pods for failure in _find_pod_failures(pod)]
    last: dict[tuple[str, int], str] = {}
    for each in found:
        last[each.rank] = max(last.get(each.rank, ""), each.created)
    candidates = [each for each in found if each.created == last[each.rank]]
    ordered = sorted(candidates, key=lambda each: (each.failure.ended, _was_deleted(each.pod), *each.rank))
    failures = [each.failure for each in ordered]
    disrupted = _find_disruption_before(ordered[0], pods) if ordered else None
    if disrupted is None:
        return failures
    own = [each.failure for each in found if each.pod is disrupted]
    cause = own[0] if own else _build_pod_failure(disrupted)
    return [cause, *(failure for failure in failures if failure is not cause)]


def find_restarts(pods: Iterable[Mapping[str, Any]]) -> list[ContainerFailure]:
    """Return the last failure of each container that was restarted and has not failed again.

    The container runs, or has succeeded. The kubelet keeps the last end of a container and the number of its restarts.
    """
    return [
        failure for pod in pods for failure in _find_container_failures(pod) if failure.restarted and not failure.lost
    ]


def count_restarts(pods: Iterable[Mapping[str, Any]]) -> int:
    """Return how often the kubelet has restarted the containers of these pods in place."""
    return sum(get_int(status, "restartCount") for pod in pods for status in container_statuses(pod))


class _PodFailure(NamedTuple):
    """A failed container and its pod.

    Attributes:
        pod: the pod.
        failure: the failure.
    """

    pod: Mapping[str, Any]
    failure: ContainerFailure

    @property
    def rank(self) -> tuple[str, int]:
        """Replicated job and rank of the pod."""
        return self.failure.step, self.failure.rank

    @property
    def created(self) -> str:
        """Time at which the pod was created."""
        return get_str(self.pod, "metadata", "creationTimestamp")


def _find_disruption_before(first: _PodFailure, pods: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the pod of another rank that was disrupted first during the life of a failed pod.

    If one node of several is drained, the ranks on the other nodes fail because they lose it. They often end first,
    because the drained pod may continue for its grace period. It may also have been replaced by now.
    """
    disrupted = [
        (at, step_of(pod), rank_of(pod), pod)
        for pod in pods
        if (at := _disrupted_at(pod))
        and first.created <= at <= first.failure.ended
        and first.rank != (step_of(pod), rank_of(pod))
    ]
    return min(disrupted, key=lambda item: item[:-1])[-1] if disrupted else None


def _build_pod_failure(pod: Mapping[str, Any]) -> ContainerFailure:
    """Return the failure of a disrupted pod whose containers have not reported their end."""
    reason, message = _get_disruption(pod)
    name = get_str(pod, "metadata", "name")
    return ContainerFailure(name, step_of(pod), rank_of(pod), "", None, reason, 1, message, restarted=False)


def _disrupted_at(pod: Mapping[str, Any]) -> str:
    """Return the time of a pod's condition DisruptionTarget; empty without one."""
    return get_str(true_conditions(pod).get("DisruptionTarget", {}), "lastTransitionTime")


def _was_deleted(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod was deleted, and not for a reason of its own."""
    return bool(get_str(pod, "metadata", "deletionTimestamp")) and _get_disruption(pod) == ("", "")


def _find_pod_failures(pod: Mapping[str, Any]) -> Iterator[ContainerFailure]:
    succeeded = {
        get_str(status, "name")
        for status in container_statuses(pod)
        if (state := get_mapping(status, "state", "terminated")) and not get_int(state, "exitCode")
    }
    found = [each for each in _find_container_failures(pod) if each.container not in succeeded]
    yield from found
    if not found and get_str(pod, "status", "phase") == "Failed" and _get_disruption(pod) != ("", ""):
        yield _build_pod_failure(pod)


def _find_container_failures(pod: Mapping[str, Any]) -> Iterator[ContainerFailure]:
    """Yield the last failure of each container.

    A container that has succeeded since is included. Sidecars are left out. The kubelet restarts them whatever their
    exit code is, and ends them after the other containers, often with an error (Kubernetes 1.29 and later).
    """
    disruption, message = _get_disruption(pod)
    init_containers = get_list(pod, "spec", "initContainers")
    sidecars = {get_str(each, "name") for each in init_containers if get_str(each, "restartPolicy") == "Always"}
    for container in container_statuses(pod):
        name = get_str(container, "name")
        current, previous = (
            get_mapping(container, "state", "terminated"),
            get_mapping(container, "lastState", "terminated"),
        )
        ended = current if get_int(current, "exitCode") else previous
        # In CrashLoopBackOff, the number of restarts is still that of the run that has failed last (Kubernetes 1.36).
        waits = get_str(container, "state", "waiting", "reason") == "CrashLoopBackOff"
        restarted = ended is not current and not waits
        if name in sidecars or not get_int(ended, "exitCode"):
            continue
        yield ContainerFailure(
            pod=get_str(pod, "metadata", "name"),
            step=step_of(pod),
            rank=rank_of(pod),
            container=name,
            exit_code=get_int(ended, "exitCode"),
            reason=disruption or get_str(ended, "reason") or "Error",
            count=get_int(container, "restartCount") + (0 if restarted else 1),
            message=message or get_str(ended, "message"),
            restarted=restarted,
            ended=get_str(ended, "finishedAt"),
        )


def _get_disruption(pod: Mapping[str, Any]) -> tuple[str, str]:
    """Return the reason and message of the disruption that ended a pod, such as an eviction.

    Both are empty if the pod's containers ended by themselves. The kubelet writes reason and message into the pod's
    status. The scheduler, the eviction API, the taint manager and the garbage collector write only the condition
    DisruptionTarget (Kubernetes 1.36).
    """
    status, disruption = get_mapping(pod, "status"), true_conditions(pod).get("DisruptionTarget", {})
    if reason := get_str(status, "reason"):
        return reason, get_str(status, "message")
    return get_str(disruption, "reason"), get_str(disruption, "message")


def pending_reasons(pods: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the reasons why pods do not run, as one sentence each.

    A sentence is about a container that waits for a reason, or about an unschedulable pod.
    """
    return [
        f"{step_of(pod)}-{rank_of(pod)}: {reason}: {message}".rstrip(": ")
        for pod in pods
        for reason, message in startup_problems(pod)
    ]


def startup_problems(pod: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield reason and message of each problem that keeps a pod from running.

    The problems are those of the scheduler and of each waiting container.
    """
    for condition in get_list(pod, "status", "conditions"):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            yield get_str(condition, "reason"), trim_scheduler_message(get_str(condition, "message"))
    for container in container_statuses(pod):
        waiting = get_mapping(container, "state", "waiting")
        reason = get_str(waiting, "reason")
        message = get_str(waiting, "message")
        if reason and (message or reason not in _NORMAL_WAITING_REASONS):
            yield reason, message


class Sidecars(NamedTuple):
    """Containers that keep a pod running after the step's own container has succeeded.

    Attributes:
        container: name of the step's own container.
        ended: RFC 3339 time at which it ended.
        running: names of the other containers that have not ended.
    """

    container: str
    ended: str
    running: Sequence[str]


def find_sidecars(pod: Mapping[str, Any], at: str = "") -> Sidecars | None:
    """Return the containers that alone keep a pod running; None if there are none.

    Init containers are left out, because Kubernetes ends those with `restartPolicy: Always` by itself.

    Args:
        pod: the pod.
        at: RFC 3339 time to look at, in UTC; a container that ended at this time or later counts as running. Empty
            means the time of the pod's status.
    """
    ends = {
        get_str(each, "name"): get_mapping(each, "state", "terminated")
        for each in get_list(pod, "status", "containerStatuses")
    }
    own = step_of(pod) if step_of(pod) in ends else NODE
    end = ends.pop(own, {})
    running = [name for name, other in ends.items() if not other or (at and get_str(other, "finishedAt") >= at)]
    return Sidecars(own, get_str(end, "finishedAt"), running) if running and end.get("exitCode") == 0 else None


def trim_scheduler_message(message: str) -> str:
    """Return a message of a condition or event without the words that the scheduler appends.

    Other messages are returned unchanged.
    """
    return _NO_PREEMPTION.sub(r"\1", message)


def step_of(pod: Mapping[str, Any]) -> str:
    """Return the replicated job of a pod, such as `node`."""
    return get_str(pod, "metadata", "labels", STEP_LABEL)


def rank_of(pod: Mapping[str, Any]) -> int:
    """Return a pod's rank in its replicated job, counted from 0.

    Any user may create a pod with these labels, so the label may not be a number. The rank is 0 in that case.
    """
    return get_int(pod, "metadata", "labels", RANK_LABEL)


def belongs_to_job(pod: Mapping[str, Any], job: Mapping[str, Any]) -> bool:
    """Return whether a pod with a TrainJob's name belongs to exactly this TrainJob.

    It may belong to an earlier TrainJob of that name. Pods carry the uid of their JobSet, not of the TrainJob, so their
    creation times are compared.
    """
    return get_str(pod, "metadata", "creationTimestamp") >= get_str(job, "metadata", "creationTimestamp")


def restarts_in_place(pod: Mapping[str, Any]) -> bool:
    """Return whether the kubelet restarts a failed container of this pod.

    It does so with every `restartPolicy` other than `Never`.
    """
    return get_str(pod, "spec", "restartPolicy") != "Never"


def is_active(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod runs or may still start, and is not being deleted."""
    return not get_str(pod, "metadata", "deletionTimestamp") and get_str(pod, "status", "phase") not in (
        "Succeeded",
        "Failed",
    )


def claims_of(pod: Mapping[str, Any]) -> list[str]:
    """Return the names of the PersistentVolumeClaims that a pod mounts."""
    claims = [get_str(volume, "persistentVolumeClaim", "claimName") for volume in get_list(pod, "spec", "volumes")]
    return [name for name in claims if name]


def find_machines(pods: Iterable[Mapping[str, Any]]) -> dict[int, str]:
    """Return the names of the cluster's nodes on which a training's newest pods ran, by rank."""
    training = [pod for pod in pods if step_of(pod) == NODE]
    training.sort(key=lambda pod: get_str(pod, "metadata", "creationTimestamp"))
    return {rank_of(pod): name for pod in training if (name := get_str(pod, "spec", "nodeName"))}


def reduce_to_evidence(pod: Mapping[str, Any], deleted_at: datetime | None) -> dict[str, Any]:
    """Return a deleted pod with only the fields that show failures, restarts and usage.

    Args:
        pod: the last known state of the pod.
        deleted_at: when its deletion was seen; None if that is unknown. It becomes the pod's field `deletedAt`.
    """
    metadata, spec, status = get_mapping(pod, "metadata"), get_mapping(pod, "spec"), get_mapping(pod, "status")
    pod_labels, statuses = get_mapping(metadata, "labels"), ("initContainerStatuses", "containerStatuses")
    return {
        "deletedAt": deleted_at.strftime("%Y-%m-%dT%H:%M:%SZ") if deleted_at else "",
        "metadata": {
            **_select(metadata, ("name", "uid", "creationTimestamp", "deletionTimestamp")),
            "labels": _select(pod_labels, (STEP_LABEL, RANK_LABEL)),
        },
        "spec": _select(spec, ("restartPolicy", "nodeName", "initContainers", "containers")),
        "status": {
            **_select(status, ("phase", "reason", "message", "startTime", "conditions")),
            **{kind: [_select(each, _STATUS_FIELDS) for each in get_list(status, kind)] for kind in statuses},
        },
    }


def _select(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: values[name] for name in names if name in values}


def container_statuses(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the statuses of a pod's containers, init containers first."""
    return [*get_list(pod, "status", "initContainerStatuses"), *get_list(pod, "status", "containerStatuses")]
