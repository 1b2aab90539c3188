"""Location of the model of a finished fine-tuning, for its export."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainjob.client import Cluster
from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.output_folder import find_output_folder, path_below_output
from trainjob.inspection.facts import command_of
from trainjob.manifest import labels
from trainjob.spec import WorkspaceVolume
from trainjob.spec.volumes import WORKSPACE
from trainjob.status import Phase, derive_verdict
from trainjob.status.nested_fields import get_list, get_mapping, get_str


def find_model(cluster: Cluster, job: Mapping[str, Any]) -> tuple[WorkspaceVolume, str]:
    """Return the workspace with a TrainJob's model, and the model's path below `output/`.

    Args:
        cluster: the cluster of the TrainJob; its claim is looked up there.
        job: the TrainJob.

    Raises:
        InvalidSpec: the TrainJob has no known model: it is not complete, does not run a known framework, its
            claim does not exist any more, or its output is not on a volume at `/workspace`.
        ClusterError: a request failed or was denied.
    """
    name, namespace = get_str(job, "metadata", "name"), get_str(job, "metadata", "namespace")
    verdict = derive_verdict(job)
    if verdict.phase is not Phase.COMPLETE:
        raise _no_model_error(name, f"it is {verdict.phase.value}: only a complete TrainJob has a final model")
    folder = find_output_folder(command_of(job))
    if folder is None:
        remedy = "the location of its model is unknown; set the model's PersistentVolumeClaim with --workspace"
        raise _no_model_error(name, f"its command is not that of a known framework: {remedy}")
    if not folder:
        return WorkspaceVolume(claim=_find_own_claim(cluster, job, name, namespace)), ""
    path = path_below_output(folder)
    workspace = next(_find_workspaces(get_mapping(job, "spec")), None)
    if path is None or workspace is None:
        raise _no_model_error(name, f"its output is not below {WORKSPACE}/output on a volume")
    return workspace, path


def _no_model_error(name: str, reason: str) -> InvalidSpec:
    return InvalidSpec(Problem("NAME", repr(name), reason))


def _find_own_claim(cluster: Cluster, job: Mapping[str, Any], name: str, namespace: str) -> str:
    """Return the name of the claim with the model of a built-in training.

    From Trainer 2.2 on, JobSet creates a claim for each TrainJob. Up to 2.1 a user creates it, with the runtime's name.
    """
    for claim in (f"{labels.OWN_CLAIM_PREFIX}{name}", get_str(job, "spec", "runtimeRef", "name")):
        if cluster.get_claim(claim, namespace) is not None:
            return claim
    claim = f"{labels.OWN_CLAIM_PREFIX}{name}"
    raise _no_model_error(name, f"its PersistentVolumeClaim {claim} was deleted, and its model with it")


def _find_workspaces(value: Any) -> Iterator[WorkspaceVolume]:
    """Yield the volumes that pods mount at `/workspace`, from a spec in any dialect."""
    if isinstance(value, list | tuple):
        for inner in value:
            yield from _find_workspaces(inner)
    elif isinstance(value, Mapping):
        mounts = [mount for container in get_list(value, "containers") for mount in get_list(container, "volumeMounts")]
        for mount in mounts:
            if mount.get("mountPath") == WORKSPACE:
                yield from _workspaces_of_volume(value, mount)
        for inner in value.values():
            yield from _find_workspaces(inner)


def _workspaces_of_volume(pod: Mapping[str, Any], mount: Mapping[str, Any]) -> Iterator[WorkspaceVolume]:
    for volume in get_list(pod, "volumes"):
        claim = get_str(volume, "persistentVolumeClaim", "claimName")
        folder = get_str(volume, "hostPath", "path")
        if volume.get("name") == mount.get("name") and (claim or folder):
            yield WorkspaceVolume(claim=claim, node_path=folder, sub_path=get_str(mount, "subPath"))
