"""The provisioner of the default StorageClass, which creates a folder for each claim.

The scheduler and the persistentvolume-controller of a real control plane need it (binding mode WaitForFirstConsumer).
The laptop cluster binds claims itself.

Source: kubernetes-sigs/sig-storage-lib-external-provisioner 12 `controller/controller.go`.
"""

from __future__ import annotations

import shutil

from trainjob.errors import ClusterError
from trainjob_local.controllers.volumes import build_volume
from trainjob_local.kubelet.settings import KubeletSettings
from trainjob_local.objects import Json, ObjectApi

__all__ = ["Provisioner"]

_PROVISIONER = "controlplane.local/directory"  # of the StorageClass that cmd/controlplane/up.go creates


class Provisioner:
    """The provisioner of volumes for claims whose pod is scheduled to this node."""

    def __init__(self, api: ObjectApi, settings: KubeletSettings) -> None:
        self._api, self._settings = api, settings

    def start(self) -> None:
        """Watch claims and volumes."""
        self._api.watch("persistentvolumeclaims", self.on_claim)
        self._api.watch("persistentvolumes", self.on_volume)

    def on_claim(self, event_type: str, claim: Json) -> None:
        """Create the volume of a claim that waits for one."""
        meta = claim["metadata"]
        notes = meta.get("annotations") or {}
        ours = notes.get("volume.kubernetes.io/storage-provisioner") == _PROVISIONER
        here = notes.get("volume.kubernetes.io/selected-node") == self._settings.node
        if event_type == "DELETED" or claim["spec"].get("volumeName") or not (ours and here):
            return
        folder = self._settings.volume_folder(meta["namespace"], meta["name"], meta["uid"])
        folder.mkdir(parents=True, exist_ok=True)
        try:
            self._api.create("persistentvolumes", build_volume(claim, str(folder), _PROVISIONER))
        except ClusterError as error:
            if error.status != 409:
                raise

    def on_volume(self, event_type: str, volume: Json) -> None:
        """Delete a volume of this provisioner, and its folder, after its claim is deleted."""
        meta = volume["metadata"]
        notes = meta.get("annotations") or {}
        ours = notes.get("pv.kubernetes.io/provisioned-by") == _PROVISIONER
        released = volume.get("status", {}).get("phase") == "Released"
        if event_type == "DELETED" or not ours or not released or "deletionTimestamp" in meta:
            return
        shutil.rmtree(volume["spec"]["hostPath"]["path"], ignore_errors=True)
        try:
            self._api.delete("persistentvolumes", meta["name"])
        except ClusterError as error:
            if error.status != 404:
                raise
