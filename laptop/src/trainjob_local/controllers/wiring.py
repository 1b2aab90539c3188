"""The controllers of the laptop cluster, with the resources that they watch.

For each resource, a function returns the keys that a changed object concerns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from trainjob_local.apiserver import Registry
from trainjob_local.controllers.jobs import Backoff
from trainjob_local.controllers.lookups import Lookups
from trainjob_local.controllers.loop import Controller, Key
from trainjob_local.controllers.placement import ClaimReconciler, Scheduler
from trainjob_local.controllers.scheduling import claims_of
from trainjob_local.controllers.workloads import JobReconciler, JobSetReconciler, TrainJobReconciler
from trainjob_local.objects import Json, controller_of

__all__ = ["all_controllers"]


def all_controllers(
    registry: Registry, *, node: str, folder: Callable[[Json], Path], backoff: Backoff
) -> list[Controller]:
    """Create all controllers of the laptop cluster.

    Args:
        registry: the objects.
        node: name of the one Node.
        folder: returns the folder of a claim's volume.
        backoff: delays of Jobs before failed pods are replaced.
    """
    lookups = Lookups(registry)
    placing = dict.fromkeys(("pods", "nodes", "persistentvolumeclaims"), _one_key)
    claims = {"persistentvolumeclaims": _own_key, "pods": _claim_keys, "persistentvolumes": _claim_of_volume}
    jobs = {"jobs": _own_key, "pods": _owner_key("Job")}
    jobsets = {"jobsets": _own_key, "jobs": _owner_key("JobSet")}
    trainjobs = {"trainjobs": _own_key, "jobsets": _owner_key("TrainJob")}
    return [
        Controller("trainjobs", trainjobs, TrainJobReconciler(lookups).reconcile),
        Controller("jobsets", jobsets, JobSetReconciler(lookups).reconcile),
        Controller("jobs", jobs, JobReconciler(lookups, backoff).reconcile),
        Controller("scheduler", placing, Scheduler(lookups, node, folder).reconcile),
        Controller("claims", claims, ClaimReconciler(lookups).reconcile),
    ]


def _own_key(obj: Json) -> Iterable[Key]:
    meta = obj["metadata"]
    return [(meta.get("namespace", ""), meta["name"])]


def _owner_key(kind: str) -> Callable[[Json], Iterable[Key]]:
    def keys(obj: Json) -> Iterable[Key]:
        owner = controller_of(obj)
        return [(obj["metadata"]["namespace"], owner["name"])] if owner.get("kind") == kind else []

    return keys


def _one_key(_obj: Json) -> Iterable[Key]:
    """Return the one key of the scheduler, because it decides for all pods at once."""
    return [("", "")]


def _claim_keys(pod: Json) -> Iterable[Key]:
    return [(pod["metadata"]["namespace"], name) for name in claims_of(pod)]


def _claim_of_volume(volume: Json) -> Iterable[Key]:
    ref = volume["spec"].get("claimRef") or {}
    return [(ref["namespace"], ref["name"])] if ref.get("name") else []
