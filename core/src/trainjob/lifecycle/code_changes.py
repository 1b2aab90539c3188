"""Sending of the changes of a project to the pods of a running TrainJob.

The changes are in a ConfigMap that the TrainJob owns and its pods mount. The kubelet reads a changed ConfigMap at once
when an annotation of the pod changes, and otherwise after up to 90 s (Kubernetes 1.36, with the kubelet's defaults:
docs/tasks/configure-pod-container/configure-pod-configmap).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

from trainjob.client import Cluster
from trainjob.errors import ClusterError, Conflict, NotFound, PermissionDenied
from trainjob.lifecycle.identity import JobReference
from trainjob.manifest.code import build_config_map_metadata, changes_name
from trainjob.manifest.labels import CHANGES
from trainjob.programs.code_loop.changes import ARCHIVE_FILE, INFORMATION_FILE
from trainjob.project_code.changes import CodeChanges
from trainjob.status.nested_fields import get_str

_MAX_TRIES = 5  # of a change beside another process that changes the ConfigMap
_ENDED = ("Succeeded", "Failed")
_ROLE_HINT = "grant the Role trainjob-dev: kubectl apply -n NAMESPACE -k manifests/dev"
_SLOW = "a change may take 90 s to reach the pods"


class ChangesPublisher:
    """Sender of the changes of a project to one TrainJob.

    It continues the numbers of an earlier process.

    Args:
        cluster: the cluster of the TrainJob.
        reference: the TrainJob.
        on_notice: function that receives a line if the pods get the changes late.
    """

    def __init__(self, cluster: Cluster, reference: JobReference, on_notice: Callable[[str], None]) -> None:
        self.reference = reference
        self._cluster, self._on_notice = cluster, on_notice
        self._name = changes_name(reference.name)
        self._uid: str | None = None
        self._sent: dict[str, Any] = {"generation": 0, "deleted": []}
        self._is_known = self._is_noticed = False

    def publish(self, changes: CodeChanges) -> int | None:
        """Send the changes, and return their number; None if the TrainJob has the same ones.

        Raises:
            PermissionDenied: a permission for ConfigMaps is missing.
            ClusterError: a request failed; the changes may have been sent.
        """
        try:
            for _ in range(_MAX_TRIES):
                self._read()
                information = {"sha256": changes.sha256, "deleted": list(changes.deleted)}
                if information == {name: self._sent.get(name) for name in information} or self._are_none(changes):
                    return None
                generation = self._sent["generation"] + 1
                try:
                    self._write({"generation": generation, **information}, changes.archive)
                except (NotFound, Conflict):
                    self._is_known = False
                else:
                    self._annotate_pods(generation)
                    return int(generation)
        except PermissionDenied as error:
            error.hint = _ROLE_HINT
            raise
        raise Conflict(
            f"the ConfigMap {self.reference.namespace}/{self._name} was changed by others {_MAX_TRIES} times"
        )

    def _are_none(self, changes: CodeChanges) -> bool:
        return self._uid is None and changes.is_empty

    def _read(self) -> None:
        """Find the ConfigMap of an earlier process, once.

        One of another TrainJob of this name is deleted.
        """
        if self._is_known:
            return
        self._uid, self._sent = None, {"generation": 0, "deleted": []}
        namespace = self.reference.namespace
        if found := self._cluster.get_config_map(self._name, namespace):
            owners = found["metadata"].get("ownerReferences") or []
            if [owner["uid"] for owner in owners] == [self.reference.uid]:
                self._uid = found["metadata"]["uid"]
                self._sent = json.loads(found["data"][INFORMATION_FILE])
            else:
                self._cluster.delete_config_map(self._name, namespace, found["metadata"]["uid"])
        self._is_known = True

    def _write(self, information: dict[str, Any], archive: bytes) -> None:
        contents = {
            "data": {INFORMATION_FILE: json.dumps(information)},
            "binaryData": {ARCHIVE_FILE: base64.b64encode(archive).decode()},
        }
        namespace = self.reference.namespace
        if self._uid:
            self._cluster.patch_config_map(self._name, namespace, self._uid, contents)
        else:
            created = self._cluster.create_config_map({**self._build_config_map(), **contents})
            self._uid = created["metadata"]["uid"]
        self._sent = information

    def _build_config_map(self) -> dict[str, Any]:
        reference = self.reference
        metadata = build_config_map_metadata(self._name, reference.namespace, (reference.name, reference.uid))
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}

    def _annotate_pods(self, generation: int) -> None:
        """Let the kubelets read the changes at once, if the permission exists."""
        try:
            for pod in self._cluster.list_pods(self.reference.name, self.reference.namespace):
                self._annotate(pod, generation)
        except ClusterError as error:
            if not self._is_noticed:
                self._is_noticed = True
                advice = f"; {_ROLE_HINT}" if isinstance(error, PermissionDenied) else ""
                self._on_notice(f"{_SLOW}, because their annotations cannot be changed: {error.message}{advice}")

    def _annotate(self, pod: Mapping[str, Any], generation: int) -> None:
        metadata = pod["metadata"]
        if metadata.get("deletionTimestamp") or get_str(pod, "status", "phase") in _ENDED:
            return
        try:
            self._cluster.annotate_pod(
                metadata["name"], metadata["namespace"], metadata["uid"], {CHANGES: str(generation)}
            )
        except (NotFound, Conflict):  # it was deleted in the meantime
            return
