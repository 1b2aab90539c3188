"""Makes a folder for each claim of the default StorageClass, as a volume provisioner of a cluster does.

Only for a real control plane, whose scheduler and persistentvolume-controller ask for it (binding mode
WaitForFirstConsumer); the laptop cluster binds claims itself.
Source: kubernetes-sigs/sig-storage-lib-external-provisioner 12 `controller/controller.go`.
"""

from __future__ import annotations

import shutil

from trainjob.errors import ClusterError
from trainjob_local.kubelet.settings import KubeletSettings
from trainjob_local.objects import Json, ObjectApi

__all__ = ["Provisioner", "volume_for"]


def volume_for(claim: Json, path: str, provisioner: str) -> Json:
    """Builds the PersistentVolume of a claim: a folder, deleted with the claim."""
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


class Provisioner:
    """Provides volumes for claims whose pod was put on this node, and removes those that were released."""

    def __init__(self, api: ObjectApi, settings: KubeletSettings) -> None:
        self._api, self._settings = api, settings

    def on_claim(self, change: str, claim: Json) -> None:
        """Makes the volume of a claim that waits for one."""
        meta = claim["metadata"]
        notes = meta.get("annotations") or {}
        ours = notes.get("volume.kubernetes.io/storage-provisioner") == self._settings.provisioner
        here = notes.get("volume.kubernetes.io/selected-node") == self._settings.node
        if change == "DELETED" or claim["spec"].get("volumeName") or not (ours and here):
            return
        folder = self._settings.volume_folder(meta["namespace"], meta["name"], meta["uid"])
        folder.mkdir(parents=True, exist_ok=True)
        try:
            self._api.create("persistentvolumes", volume_for(claim, str(folder), self._settings.provisioner))
        except ClusterError as error:
            if error.status != 409:
                raise

    def on_volume(self, change: str, volume: Json) -> None:
        """Removes a volume of ours whose claim is gone, with its folder."""
        meta = volume["metadata"]
        notes = meta.get("annotations") or {}
        ours = notes.get("pv.kubernetes.io/provisioned-by") == self._settings.provisioner
        released = volume.get("status", {}).get("phase") == "Released"
        if change == "DELETED" or not ours or not released or "deletionTimestamp" in meta:
            return
        shutil.rmtree(volume["spec"]["hostPath"]["path"], ignore_errors=True)
        try:
            self._api.delete("persistentvolumes", meta["name"])
        except ClusterError as error:
            if error.status != 404:
                raise
