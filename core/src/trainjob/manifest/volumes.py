"""A request's workspace and volumes as a pod has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainjob.spec import TrainJob, Volume, Workspace
from trainjob.spec.volumes import WORKSPACE

_WORKSPACE_VOLUME = "workspace"

_Items = list[dict[str, Any]]


def volumes_and_mounts(job: TrainJob) -> tuple[_Items, _Items]:
    """The pod's volumes, each once, and the mounts of them in each container; the workspace's come first."""
    asked = [*([_workspace(job.workspace)] if job.workspace else []), *map(_volume, job.volumes)]
    sources = {mount["name"]: source for source, mount in asked}
    return [{"name": name, **source} for name, source in sources.items()], [mount for _, mount in asked]


def _workspace(workspace: Workspace) -> tuple[Mapping[str, Any], dict[str, Any]]:
    claim = {"persistentVolumeClaim": {"claimName": workspace.claim}}
    # With the type, a folder that is missing is an event of the pod, and not a new folder of root's.
    folder = {"hostPath": {"path": workspace.node_path, "type": "Directory"}}
    return claim if workspace.claim else folder, _mount(_WORKSPACE_VOLUME, WORKSPACE, workspace.sub_path)


def _volume(volume: Volume) -> tuple[Mapping[str, Any], dict[str, Any]]:
    return volume.source, _mount(volume.name, volume.mount_path, volume.sub_path, read_only=volume.read_only)


def _mount(name: str, path: str, sub_path: str, *, read_only: bool = False) -> dict[str, Any]:
    more = {**({"subPath": sub_path} if sub_path else {}), **({"readOnly": True} if read_only else {})}
    return {"name": name, "mountPath": path, **more}
