"""Times from which the limits on the queue and on the start count, taken from the objects of the cluster.

They are the same for every process, so a limit goes on when another process continues the wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from trainjob.manifest import labels
from trainjob.status.nested_fields import get_list, get_mapping, get_str, parse_time, true_conditions


def get_queue_start(job: Mapping[str, Any]) -> datetime | None:
    """Return the time since which a TrainJob has been in a queue or suspended.

    Returns:
        None while the Trainer has not handled a change of `spec.suspend` yet, for example right after the adoption of a
        suspended TrainJob.
    """
    condition = _get_suspended_condition(job)
    if (condition.get("status") == "True") != bool(get_mapping(job, "spec").get("suspend")):
        return None if condition else _get_creation(job)
    return _latest(parse_time(get_str(condition, "lastTransitionTime")) or _get_creation(job), _get_reached(job))


def get_launch_start(
    job: Mapping[str, Any], pods: Iterable[Mapping[str, Any]], observed_since: datetime
) -> datetime | None:
    """Return the time since which a TrainJob has waited for its pods to become ready.

    It is the end of the queue, or the creation. It is the creation of the oldest pod that is not ready if that is later
    and was before this process began: the pod may replace one that ran for days, for example until a node was drained.

    Args:
        job: the TrainJob.
        pods: its known pods.
        observed_since: when this process first saw the TrainJob wait for its pods.
    """
    resumed = parse_time(get_str(_get_suspended_condition(job), "lastTransitionTime")) or _get_creation(job)
    times = (parse_time(get_str(pod, "metadata", "creationTimestamp")) for pod in pods if _is_starting(pod))
    replaced = min((time for time in times if time is not None and time <= observed_since), default=None)
    return _latest(resumed, replaced, _get_reached(job))


def _get_suspended_condition(job: Mapping[str, Any]) -> Mapping[str, Any]:
    conditions = get_list(job, "status", "conditions")
    return next((each for each in conditions if each.get("type") == "Suspended"), {})


def _get_creation(job: Mapping[str, Any]) -> datetime | None:
    return parse_time(get_str(job, "metadata", "creationTimestamp"))


def _get_reached(job: Mapping[str, Any]) -> datetime | None:
    return parse_time(labels.get_annotation(job, labels.LIMIT_REACHED))


def _is_starting(pod: Mapping[str, Any]) -> bool:
    ended = get_str(pod, "status", "phase") in ("Succeeded", "Failed")
    return not (ended or "Ready" in true_conditions(pod) or get_mapping(pod, "metadata").get("deletionTimestamp"))


def _latest(*times: datetime | None) -> datetime | None:
    return max((time for time in times if time is not None), default=None)
