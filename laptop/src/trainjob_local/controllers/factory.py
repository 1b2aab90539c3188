"""The controllers of the laptop cluster, with the resources that they watch.

For each resource, a function returns the keys that a changed object concerns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from trainjob_local.apiserver import Registry
from trainjob_local.controllers.controller_manager import Controller, Key
from trainjob_local.controllers.jobs import Backoff
from trainjob_local.controllers.object_lister import ObjectLister
from trainjob_local.controllers.scheduling import mounted_claims
from trainjob_local.controllers.scheduling_reconcilers import ClaimReconciler, Scheduler
from trainjob_local.controllers.workload_reconcilers import JobReconciler, JobSetReconciler, TrainJobReconciler
from trainjob_local.objects import Json, controller_of

__all__ = ["create_controllers"]


def create_controllers(
    registry: Registry, *, node: str, volume_folder: Callable[[Json], Path], backoff: Backoff
) -> list[Controller]:
    """Create all controllers of the laptop cluster.

    Args:
        registry: registry of the objects.
        node: name of the only Node.
        volume_folder: function that returns the folder of a claim's volume.
        backoff: delays of Jobs before failed pods are replaced.
    """
    lister = ObjectLister(registry)
    scheduler = dict.fromkeys(("pods", "nodes", "persistentvolumeclaims"), _scheduler_key)
    claims = {"persistentvolumeclaims": _own_key, "pods": _mounted_claim_keys, "persistentvolumes": _bound_claim_key}
    jobs = {"jobs": _own_key, "pods": _owner_key("Job")}
    jobsets = {"jobsets": _own_key, "jobs": _owner_key("JobSet")}
    trainjobs = {"trainjobs": _own_key, "jobsets": _owner_key("TrainJob")}
    return [
        Controller("trainjobs", trainjobs, TrainJobReconciler(lister).reconcile),
        Controller("jobsets", jobsets, JobSetReconciler(lister).reconcile),
        Controller("jobs", jobs, JobReconciler(lister, backoff).reconcile),
        Controller("scheduler", scheduler, Scheduler(lister, node, volume_folder).reconcile),
        Controller("claims", claims, ClaimReconciler(lister).reconcile),
    ]


def _own_key(obj: Json) -> Iterable[Key]:
    meta = obj["metadata"]
    return [(meta.get("namespace", ""), meta["name"])]


def _owner_key(kind: str) -> Callable[[Json], Iterable[Key]]:
    def keys(obj: Json) -> Iterable[Key]:
        owner = controller_of(obj)
        return [(obj["metadata"]["namespace"], owner["name"])] if owner.get("kind") == kind else []

    return keys


def _scheduler_key(_obj: Json) -> Iterable[Key]:
    """Return the only key of the scheduler, because it decides for all pods at once."""
    return [("", "")]


def _mounted_claim_keys(pod: Json) -> Iterable[Key]:
    return [(pod["metadata"]["namespace"], name) for name in mounted_claims(pod)]


def _bound_claim_key(volume: Json) -> Iterable[Key]:
    ref = volume["spec"].get("claimRef") or {}
    return [(ref["namespace"], ref["name"])] if ref.get("name") else []
