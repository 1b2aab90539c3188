"""Reconcilers for pods to schedule and claims to bind; they read the objects that the decisions need."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from trainjob_local.controllers import scheduling, volumes
from trainjob_local.controllers.conditions import find_condition
from trainjob_local.controllers.controller_manager import Key
from trainjob_local.controllers.job_pods import has_ended
from trainjob_local.controllers.object_lister import ObjectLister
from trainjob_local.controllers.writes import Bind, Decision, Delete, EventWrite, Patch, Write, patch_status
from trainjob_local.objects import Json

__all__ = ["ClaimReconciler", "Scheduler"]

_SCHEDULER = "default-scheduler"


class Scheduler:
    """Scheduler that binds pods to the only Node, and binds the claims of these pods.

    Args:
        lister: lister of the objects.
        node: name of the Node.
        volume_folder: function that returns the folder of a claim's volume.
    """

    def __init__(self, lister: ObjectLister, node: str, volume_folder: Callable[[Json], Path]) -> None:
        self._lister, self._node, self._volume_folder = lister, node, volume_folder

    def reconcile(self, _key: Key, now: datetime) -> Decision:
        """Decide for all pods that wait to be scheduled, oldest first."""
        pods = self._lister.list_objects("pods")
        waiting = [pod for pod in pods if _needs_scheduling(pod)]
        if not waiting:
            return Decision()
        scheduled = [pod for pod in pods if pod["spec"].get("nodeName") and not has_ended(pod)]
        node = self._lister.find("nodes", self._node)
        ready = node if node and (node.get("status") or {}).get("allocatable") else None
        writes: list[Write] = []
        bound: set[str] = set()
        for pod in sorted(waiting, key=_creation_order):
            problem = self._find_problem(pod, ready, scheduled)
            if not problem:
                writes += [*self._bind_claims(pod, bound), Bind(pod, self._node), _scheduled_event(pod, self._node)]
                scheduled.append(pod)
            else:
                writes += _report_unschedulable(pod, problem, now)
        return Decision(writes)

    def _find_problem(self, pod: Json, node: Json | None, scheduled: Sequence[Json]) -> str:
        """Return why a pod can't be scheduled; empty if it can."""
        namespace = pod["metadata"]["namespace"]

        def claim(name: str) -> Json | None:
            return self._lister.find("persistentvolumeclaims", name, namespace)

        claims = filter(None, map(claim, scheduling.mounted_claims(pod)))
        why = scheduling.unschedulable_reason(pod, node, scheduled, claim)
        if not all(map(volumes.is_provisionable, claims)):
            why = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"
        return why

    def _bind_claims(self, pod: Json, bound: set[str]) -> list[Write]:
        writes: list[Write] = []
        for name in scheduling.mounted_claims(pod):
            claim = self._lister.find("persistentvolumeclaims", name, pod["metadata"]["namespace"])
            if claim is None or claim["spec"].get("volumeName") or claim["metadata"]["uid"] in bound:
                continue
            bound.add(claim["metadata"]["uid"])
            folder = self._volume_folder(claim)
            folder.mkdir(parents=True, exist_ok=True)
            writes += volumes.bind_claim(claim, self._node, str(folder))
        return writes


class ClaimReconciler:
    """Reconciler that protects claims in use, and removes the volumes of deleted claims."""

    def __init__(self, lister: ObjectLister) -> None:
        self._lister = lister
        self._reported: set[str] = set()

    def reconcile(self, key: Key, _now: datetime) -> Decision:
        """Decide which writes one claim needs."""
        namespace, name = key
        claim = self._lister.find("persistentvolumeclaims", name, namespace)
        if claim is None:
            return Decision(self._delete_old_volumes(key, ""))
        writes = self._delete_old_volumes(key, claim["metadata"]["uid"])
        meta = claim["metadata"]
        used = volumes.is_in_use(claim, self._lister.list_objects("pods", namespace))
        if "deletionTimestamp" in meta:
            protected = volumes.PROTECTION_FINALIZER in (meta.get("finalizers") or [])
            return Decision([*writes, volumes.remove_protection(claim)] if protected and not used else writes)
        if (claim.get("status") or {}).get("phase") != "Bound":
            writes += self._reconcile_pending(claim, used=used)
        return Decision(writes)

    def _reconcile_pending(self, claim: Json, *, used: bool) -> list[Write]:
        wanted, uid = claim["spec"].get("volumeName"), claim["metadata"]["uid"]
        volume = self._lister.find("persistentvolumes", wanted) if wanted else None
        if volume is not None:  # the claim names this volume, or binding was interrupted
            return _complete_binding(claim, volume)
        if used or uid in self._reported:
            return []
        self._reported.add(uid)
        return [
            volumes.waiting_event(claim)
            if volumes.is_provisionable(claim)
            else volumes.provisioning_failed_event(claim)
        ]

    def _delete_old_volumes(self, key: Key, uid: str) -> list[Write]:
        """Delete this provisioner's volumes that belonged to another claim of the same name."""
        writes: list[Write] = []
        for volume in self._lister.list_objects("persistentvolumes"):
            ref = volume["spec"].get("claimRef") or {}
            notes = volume["metadata"].get("annotations") or {}
            ours = notes.get("pv.kubernetes.io/provisioned-by") == volumes.PROVISIONER
            if ours and (ref.get("namespace"), ref.get("name")) == key and ref.get("uid") != uid:
                shutil.rmtree(volume["spec"]["hostPath"]["path"], ignore_errors=True)
                writes.append(Delete("persistentvolumes", volume))
        return writes


def _needs_scheduling(pod: Json) -> bool:
    ours = not pod["spec"].get("nodeName") and pod["spec"].get("schedulerName", _SCHEDULER) == _SCHEDULER
    may_start = not pod["spec"].get("schedulingGates") and "deletionTimestamp" not in pod["metadata"]
    return ours and may_start and not has_ended(pod)


def _creation_order(pod: Json) -> tuple[str, str]:
    return pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]


def _scheduled_event(pod: Json, node: str) -> EventWrite:
    meta = pod["metadata"]
    text = f"Successfully assigned {meta['namespace']}/{meta['name']} to {node}"
    return EventWrite("pods", pod, "Normal", "Scheduled", text, _SCHEDULER, "Binding")


def _report_unschedulable(pod: Json, message: str, now: datetime) -> list[Write]:
    """Report why a pod is not scheduled, once for each reason."""
    condition = find_condition((pod.get("status") or {}).get("conditions") or [], "PodScheduled") or {}
    if condition.get("message") == message:
        return []
    change = {"status": scheduling.unschedulable_status(pod, message, now)}
    event = EventWrite("pods", pod, "Warning", "FailedScheduling", message, _SCHEDULER, "Scheduling")
    return [Patch("pods", pod, change, subresource="status"), event]


def _complete_binding(claim: Json, volume: Json) -> list[Write]:
    size = volume["spec"].get("capacity") or {}
    status = {"phase": "Bound", "accessModes": claim["spec"]["accessModes"], "capacity": dict(size)}
    return [
        patch_status("persistentvolumes", volume, {"phase": "Bound"}),
        patch_status("persistentvolumeclaims", claim, status),
    ]
