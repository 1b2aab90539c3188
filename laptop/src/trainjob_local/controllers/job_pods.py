"""The pods of a Job: how they are built and how they end; pure functions.

Source: Kubernetes 1.36 `pkg/controller/job/{job_controller,indexed_job_utils}.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from datetime import datetime, timedelta

from trainjob_local.controllers.conditions import is_condition_true
from trainjob_local.objects import Json, owner_reference, parse_timestamp

__all__ = [
    "COMPLETION_INDEX",
    "TRACKING_FINALIZER",
    "build_pod",
    "completion_index",
    "format_indexes",
    "has_ended",
    "is_failed",
    "is_ready",
    "last_failure_time",
]

TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"
"""Finalizer that retains a pod until the Job controller has counted its end."""

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
_FINISHED_PHASES = ("Succeeded", "Failed")


def build_pod(job: Json, index: int | None) -> Json:
    """Build a pod of a Job.

    Args:
        job: the Job.
        index: completion index of the pod; None if the Job is not Indexed.
    """
    meta, template = job["metadata"], deepcopy(job["spec"]["template"])
    own, spec, name = template.get("metadata") or {}, template["spec"], meta["name"]
    uid = meta["uid"]
    labels = {**(own.get("labels") or {}), "controller-uid": uid, "job-name": name}
    labels |= {"batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name}
    annotations = dict(own.get("annotations") or {})
    if index is not None:
        labels[COMPLETION_INDEX] = annotations[COMPLETION_INDEX] = str(index)
        name = f"{name}-{index}"
        spec["hostname"] = name[:63]
        _set_index_variable(spec)
    return {
        "metadata": {
            "generateName": f"{name}-",
            "namespace": meta["namespace"],
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner_reference(job, "jobs")],
            "finalizers": [TRACKING_FINALIZER],
        },
        "spec": spec,
    }


def _set_index_variable(spec: Json) -> None:
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{COMPLETION_INDEX}']"}}
    for container in [*(spec.get("initContainers") or []), *spec["containers"]]:
        env = container.setdefault("env", [])
        if not any(one["name"] == "JOB_COMPLETION_INDEX" for one in env):
            env.append({"name": "JOB_COMPLETION_INDEX", "valueFrom": deepcopy(source)})


def completion_index(pod: Json) -> int | None:
    """Return the completion index of a pod, or None if it has no index."""
    index = (pod["metadata"].get("annotations") or {}).get(COMPLETION_INDEX)
    return int(index) if index is not None else None


def has_ended(pod: Json) -> bool:
    """Return whether the phase of a pod is Succeeded or Failed."""
    return (pod.get("status") or {}).get("phase") in _FINISHED_PHASES


def is_failed(pod: Json) -> bool:
    """Return whether a pod counts as failed.

    A pod counts as failed if its phase is Failed, or if it is being deleted before it succeeded.
    """
    phase = (pod.get("status") or {}).get("phase")
    return phase == "Failed" or (phase != "Succeeded" and "deletionTimestamp" in pod["metadata"])


def is_ready(pod: Json) -> bool:
    """Return whether a pod runs and is ready."""
    status = pod.get("status") or {}
    return status.get("phase") == "Running" and is_condition_true(status.get("conditions") or [], "Ready")


def last_failure_time(pods: Sequence[Json]) -> datetime | None:
    """Return the time at which the last of these pods failed or was deleted, or None."""
    times: list[datetime] = []
    for pod in pods:
        meta, status = pod["metadata"], pod.get("status") or {}
        if "deletionTimestamp" in meta:  # the end of the grace period, not the time of the request
            grace = timedelta(seconds=int(meta.get("deletionGracePeriodSeconds", 0)))
            times.append(parse_timestamp(meta["deletionTimestamp"]) - grace)
        ends = [one["state"].get("terminated") or {} for one in status.get("containerStatuses") or []]
        times += [parse_timestamp(end["finishedAt"]) for end in ends if "finishedAt" in end]
    return max(times) if times else None


def format_indexes(indexes: Iterable[int]) -> str:
    """Format completed indexes as in a Job's status: `0,2-5`; two adjacent ones as `0,1`."""
    parts: list[str] = []
    run: list[int] = []
    for index in [*sorted(indexes), -1]:
        if run and index != run[-1] + 1:
            parts.append(str(run[0]) if len(run) == 1 else f"{run[0]}{',' if len(run) == 2 else '-'}{run[-1]}")
            run = []
        run.append(index)
    return ",".join(parts)


def parse_indexes(text: str) -> set[int]:
    """Parse the completed indexes of a Job's status."""
    found: set[int] = set()
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found
