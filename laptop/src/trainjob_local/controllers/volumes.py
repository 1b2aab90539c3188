"""Writes that bind claims to folders and release them; the functions that decide are pure.

A claim waits for its first pod (StorageClass `local-directory`, binding mode WaitForFirstConsumer), then gets a volume
that is a folder. A claim is not removed while a pod uses it. Volume and folder are removed with the claim.

Source: Kubernetes 1.36 `pkg/controller/volume/{persistentvolume,pvcprotection}`,
`pkg/scheduler/framework/plugins/volumebinding`.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainjob_local.controllers.job_pods import has_ended
from trainjob_local.controllers.scheduling import mounted_claims
from trainjob_local.controllers.writes import Create, EventWrite, Patch, Write, patch_status
from trainjob_local.objects import Json

__all__ = [
    "PROTECTION_FINALIZER",
    "PROVISIONER",
    "STORAGE_CLASS",
    "bind_claim",
    "build_storage_class",
    "build_volume",
    "is_in_use",
    "is_provisionable",
    "provisioning_failed_event",
    "remove_protection",
    "waiting_event",
]

PROTECTION_FINALIZER = "kubernetes.io/pvc-protection"
PROVISIONER = "trainjob.dev/local-directory"
STORAGE_CLASS = "local-directory"
_COMPONENT = "persistentvolume-controller"


def waiting_event(claim: Json) -> EventWrite:
    """Return the event of a claim that no pod uses yet."""
    text = "waiting for first consumer to be created before binding"
    return EventWrite("persistentvolumeclaims", claim, "Normal", "WaitForFirstConsumer", text, _COMPONENT)


def build_storage_class() -> Json:
    """Return the only StorageClass, which is the default one."""
    return {
        "metadata": {"name": STORAGE_CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def is_provisionable(claim: Json) -> bool:
    """Return whether a claim has a volume or will get one from the only StorageClass."""
    return bool(claim["spec"].get("volumeName")) or claim["spec"].get("storageClassName") == STORAGE_CLASS


def provisioning_failed_event(claim: Json) -> EventWrite:
    """Return the event of a claim with another StorageClass, or without one."""
    name = claim["spec"].get("storageClassName")
    if not name:
        text = "no persistent volumes available for this claim and no storage class is set"
        return EventWrite("persistentvolumeclaims", claim, "Normal", "FailedBinding", text, _COMPONENT)
    text = f'storageclass.storage.k8s.io "{name}" not found'
    return EventWrite("persistentvolumeclaims", claim, "Warning", "ProvisioningFailed", text, _COMPONENT)


def build_volume(claim: Json, path: str, provisioner: str) -> Json:
    """Return the PersistentVolume of a claim: a folder, deleted with the claim."""
    meta, spec = claim["metadata"], claim["spec"]
    ref = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"} | {
        key: meta[key] for key in ("namespace", "name", "uid")
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"pvc-{meta['uid']}", "annotations": {"pv.kubernetes.io/provisioned-by": provisioner}},
        "spec": {
            "capacity": spec["resources"]["requests"],
            "accessModes": spec["accessModes"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": spec.get("storageClassName", ""),
            "volumeMode": "Filesystem",
            "claimRef": ref,
            "hostPath": {"path": path, "type": ""},
        },
    }


def bind_claim(claim: Json, node: str, folder: str) -> list[Write]:
    """Return the writes that bind a claim to a new volume backed by this folder."""
    volume = build_volume(claim, folder, PROVISIONER)
    name, notes = (
        volume["metadata"]["name"],
        {
            "pv.kubernetes.io/bind-completed": "yes",
            "pv.kubernetes.io/bound-by-controller": "yes",
            "volume.beta.kubernetes.io/storage-provisioner": PROVISIONER,
            "volume.kubernetes.io/selected-node": node,
            "volume.kubernetes.io/storage-provisioner": PROVISIONER,
        },
    )
    bound = {
        "phase": "Bound",
        "accessModes": claim["spec"]["accessModes"],
        "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
    }
    return [
        Create("persistentvolumes", volume, may_exist=True),
        patch_status("persistentvolumes", volume, {"phase": "Bound"}),
        Patch("persistentvolumeclaims", claim, {"metadata": {"annotations": notes}, "spec": {"volumeName": name}}),
        patch_status("persistentvolumeclaims", claim, bound),
    ]


def is_in_use(claim: Json, pods: Sequence[Json]) -> bool:
    """Return whether a pod that has not ended mounts the claim."""
    meta = claim["metadata"]
    return any(
        pod["metadata"]["namespace"] == meta["namespace"] and not has_ended(pod) and meta["name"] in mounted_claims(pod)
        for pod in pods
    )


def remove_protection(claim: Json) -> Patch:
    """Return the patch that removes the finalizer that protects a claim in use."""
    kept = [one for one in claim["metadata"].get("finalizers") or [] if one != PROTECTION_FINALIZER]
    return Patch("persistentvolumeclaims", claim, {"metadata": {"finalizers": kept or None}})
