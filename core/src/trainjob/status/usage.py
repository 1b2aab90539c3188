"""Pod seconds and GPU seconds of a TrainJob, from its pods.

A pod uses its resources from its binding to a node until its end. The scheduler subtracts them from the node at the
binding, before the image is pulled, and no other pod can use them until the end (Kubernetes 1.36).
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from trainjob.status.nested_fields import get_int, get_list, get_mapping, get_str, parse_time, true_conditions
from trainjob.status.pods import NODE, container_statuses, rank_of, step_of
from trainjob.status.verdict import Phase, had_pods

_GPU = re.compile(r"nvidia\.com/(gpu(\.shared)?|mig-.+)|amd\.com/gpu|gpu\.intel\.com/(i915|xe)")
_QUANTITY = re.compile(r"([0-9]{1,18})([kMGTPE]?)(i?)")  # extended resources are integers (Kubernetes 1.36)
# The control plane creates the first pods of a step within seconds. After a longer time, pods may have been replaced.
_FIRST_PODS_WITHIN = timedelta(seconds=60)
Pod = Mapping[str, Any]


@dataclass(frozen=True)
class Usage:
    """Resources that the pods of one TrainJob have used, multiplied by the time.

    Attributes:
        pod_seconds: sum of the seconds of all pods, including initializers and pods that were replaced.
        resource_seconds: for each extended resource, such as `nvidia.com/gpu`: its amount times the seconds.
        complete: whether all pods are known and have ended. Otherwise, the other values are lower bounds.
    """

    pod_seconds: float = 0.0
    resource_seconds: Mapping[str, float] = field(default_factory=dict)
    complete: bool = True

    @property
    def gpu_seconds(self) -> float:
        """Sum over the GPUs of NVIDIA, AMD and Intel; a MIG slice counts as one GPU."""
        return sum(seconds for name, seconds in self.resource_seconds.items() if _GPU.fullmatch(name))

    def __add__(self, other: Usage) -> Usage:
        """Return the sum; it is complete if both are."""
        seconds = defaultdict[str, float](float, self.resource_seconds)
        for name, value in other.resource_seconds.items():
            seconds[name] += value
        return Usage(self.pod_seconds + other.pod_seconds, dict(seconds), self.complete and other.complete)

    def to_dict(self) -> dict[str, Any]:
        """Return the usage as JSON values, with the sum of GPU seconds."""
        return {
            "pod_seconds": self.pod_seconds,
            "gpu_seconds": self.gpu_seconds,
            "resource_seconds": dict(self.resource_seconds),
            "complete": self.complete,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Usage:
        """Create a usage from the result of [to_dict][]; `gpu_seconds` is computed again.

        Raises:
            KeyError: `pod_seconds` or `resource_seconds` is missing.
            TypeError: a value has the wrong type.
            ValueError: a number of seconds is negative or not finite.
        """
        given = values["resource_seconds"]
        if not isinstance(given, Mapping):
            raise TypeError("resource_seconds must be an object")
        resources = {str(name): _seconds(value) for name, value in given.items()}
        return cls(_seconds(values["pod_seconds"]), resources, bool(values.get("complete", False)))


def compute_usage(job: Mapping[str, Any], pods: Iterable[Pod], now: datetime) -> Usage:
    """Return the usage of a TrainJob until now.

    A pod counts from its binding to a node until the end of its last container. Restarts in place belong to this time.
    Each pod counts once by its uid, and its replacement counts as another pod.

    Args:
        job: the TrainJob.
        pods: its pods, including deleted ones; see `trainjob.status.pods.reduce_to_evidence`.
        now: current time; the end of pods that have not ended.
    """
    by_uid = {get_str(pod, "metadata", "uid"): pod for pod in pods}
    ends = {uid: _end_time(pod, now) for uid, pod in by_uid.items()}
    seconds = defaultdict[str, float](float)
    pod_seconds = 0.0
    for uid, pod in by_uid.items():
        if (start := _start_time(pod)) is None:
            continue
        length = max(0.0, ((ends[uid] or now) - start).total_seconds())
        pod_seconds += length
        for name, amount in _extended_resources(pod).items():
            seconds[name] += amount * length
    has_all = all(ends.values()) and _are_all_pods_known(job, by_uid, ends)
    return Usage(pod_seconds, dict(seconds), complete=has_all)


def get_first_start(pods: Iterable[Pod]) -> str:
    """Return the RFC 3339 time at which the first pod was bound to a node; empty if none was."""
    first = min(filter(None, map(_start_time, pods)), default=None)
    return first.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ") if first else ""


def _start_time(pod: Pod) -> datetime | None:
    """Return the time at which the pod was bound to its node; None if it was not."""
    bound = get_str(true_conditions(pod).get("PodScheduled"), "lastTransitionTime")
    return parse_time(bound) or parse_time(get_str(pod, "status", "startTime"))


def _end_time(pod: Pod, now: datetime) -> datetime | None:
    """Return the time at which a pod ended; None if it has not ended."""
    ended = [state for status in container_statuses(pod) if (state := get_mapping(status, "state", "terminated"))]
    times = [time for state in ended if (time := parse_time(get_str(state, "finishedAt")))]
    if get_str(pod, "status", "phase") in ("Succeeded", "Failed"):
        # A pod that was evicted before its containers started has only conditions.
        changes = [get_str(each, "lastTransitionTime") for each in get_list(pod, "status", "conditions")]
        return max(times, default=None) or max(filter(None, map(parse_time, changes)), default=now)
    limit = parse_time(get_str(pod, "metadata", "deletionTimestamp"))  # the end of the grace period
    deleted_at = parse_time(get_str(pod, "deletedAt"))
    if (limit or deleted_at) and times and len(ended) == len(container_statuses(pod)):
        return max(times)
    return min(deleted_at, limit) if deleted_at and limit else deleted_at


def _extended_resources(pod: Pod) -> Counter[str]:
    """Return the extended resources that the scheduler reserves for a pod, by name.

    This is the maximum over the phases of the pod: each init container with the sidecars before it, then all containers
    with all sidecars (k8s.io/component-helpers 0.36, resource/helpers.go).
    """
    together, peak = Counter[str](), Counter[str]()  # of the containers that run together; the maximum so far
    for container in get_list(pod, "spec", "initContainers"):
        requests = _requests(container)
        peak |= together + requests
        if get_str(container, "restartPolicy") == "Always":
            together += requests
    for container in get_list(pod, "spec", "containers"):
        together += _requests(container)
    return peak | together


def _requests(container: Mapping[str, Any]) -> Counter[str]:
    resources = get_mapping(container, "resources")
    amounts = {**get_mapping(resources, "limits"), **get_mapping(resources, "requests")}
    return Counter({name: _parse_quantity(amount) for name, amount in amounts.items() if _is_extended(name)})


def _is_extended(name: str) -> bool:
    domain, slash, _ = name.partition("/")
    return bool(slash) and not domain.endswith("kubernetes.io")


def _parse_quantity(text: object) -> int:
    if not (found := _QUANTITY.fullmatch(str(text))):
        return 0
    number, suffix, binary = found.groups()
    return int(number) * int((1024 if binary else 1000) ** " kMGTPE".index(suffix or " "))


def _are_all_pods_known(job: Mapping[str, Any], pods: Mapping[str, Pod], ends: Mapping[str, datetime | None]) -> bool:
    """Return whether no pod can be missing that was deleted before anyone could see it.

    The first pods of a step are created shortly after the TrainJob, its resumption, or the end of another step. If the
    oldest known pod of a rank is younger, it may have replaced another one.
    """
    if not pods:
        return not had_pods(job)
    steps: dict[str, list[str]] = {}
    for uid, pod in pods.items():
        steps.setdefault(step_of(pod), []).append(uid)
    begin = _first_begin(job)
    if begin is None or not _have_pods_of_all_ranks(job, steps, pods):
        return False
    for step, uids in steps.items():
        first = _first_created(pods[uid] for uid in uids)
        if first is None:
            return False
        moments = [begin, *(end for uid, end in ends.items() if end and step_of(pods[uid]) != step)]
        if not any(abs(min(first) - moment) <= _FIRST_PODS_WITHIN for moment in moments):
            return False
        if max(first) - min(first) > _FIRST_PODS_WITHIN:
            return False
    return True


def _have_pods_of_all_ranks(
    job: Mapping[str, Any], steps: Mapping[str, Sequence[str]], pods: Mapping[str, Pod]
) -> bool:
    counters = ("ready", "succeeded", "failed")
    counted = get_list(job, "status", "jobsStatus")
    ran = {get_str(each, "name") for each in counted if any(get_int(each, counter) for counter in counters)}
    if not ran <= steps.keys():
        return False
    ranks = {rank_of(pods[uid]) for uid in steps.get(NODE, ())}
    if nodes := get_int(job, "spec", "trainer", "numNodes"):
        return not ranks or len(ranks) >= nodes
    # The runtime decides. The pods of ranks that have not failed are deleted with a failed TrainJob.
    return Phase.COMPLETE.value in true_conditions(job)


def _first_begin(job: Mapping[str, Any]) -> datetime | None:
    """Return the earliest time at which pods could be created.

    A TrainJob of generation 2 that was resumed was created suspended, for example in a queue. A later generation may
    have run before.
    """
    created = parse_time(get_str(job, "metadata", "creationTimestamp"))
    for condition in get_list(job, "status", "conditions"):
        if (condition.get("type"), condition.get("status")) == ("Suspended", "False"):
            resumed = parse_time(get_str(condition, "lastTransitionTime"))
            return resumed if get_int(job, "metadata", "generation") <= 2 else created
    return created


def _first_created(pods: Iterable[Pod]) -> list[datetime] | None:
    """Return the creation time of each rank's oldest pod; None if a time is not known."""
    first: dict[int, datetime] = {}
    for pod in pods:
        created = parse_time(get_str(pod, "metadata", "creationTimestamp"))
        if created is None:
            return None
        rank = rank_of(pod)
        first[rank] = min(first.get(rank, created), created)
    return list(first.values())


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"seconds must be a number, not {value!r}")
    if not 0 <= value <= sys.float_info.max:  # an integer of JSON may be larger
        raise ValueError(f"seconds must be finite and not negative, not {value!r}")
    return float(value)
