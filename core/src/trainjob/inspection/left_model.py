"""Where the model is that a finished fine-tuning has left: the workspace of its export."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainjob.client import Cluster
from trainjob.errors import InvalidSpec, Problem
from trainjob.inspection.facts import command_of
from trainjob.manifest import labels
from trainjob.spec import Workspace
from trainjob.spec.volumes import WORKSPACE
from trainjob.status import Phase, judge
from trainjob.status.reading import rows, table, text

_OUTPUT = f"output_dir={WORKSPACE}/output"


def left_model(cluster: Cluster, job: Mapping[str, Any]) -> tuple[Workspace, str]:
    """The workspace that a TrainJob's model is on, and where below its `output/`.

    Args:
        cluster: where the TrainJob is; a claim that the Trainer made for it is looked for there.
        job: the TrainJob.

    Raises:
        InvalidSpec: it has no model: it is not complete, does not run TorchTune, or its claim is gone.
        ClusterError: the cluster can't be asked.
    """
    name, namespace, verdict = text(job, "metadata", "name"), text(job, "metadata", "namespace"), judge(job)
    if verdict.phase is not Phase.COMPLETE:
        raise _no_model(name, f"it is {verdict.phase.value}: only one that is complete has a final model")
    words = command_of(job)
    if "tune" not in words:
        known = "only what TorchTune leaves is known: name the claim that the model is on with --workspace"
        raise _no_model(name, f"it does not run TorchTune; {known}")
    if words == ["tune", "run"] or not any(word.startswith("output_dir=") for word in words):
        return Workspace(claim=_own_claim(cluster, job, name, namespace)), ""
    places = [word.removeprefix(_OUTPUT) for word in words if word.startswith(_OUTPUT)]
    workspace = next(_workspaces(table(job, "spec")), None)
    if not places or workspace is None:
        raise _no_model(name, f"its output is not below {WORKSPACE}/output of a volume")
    return workspace, places[-1].strip("/")


def _no_model(name: str, why: str) -> InvalidSpec:
    return InvalidSpec(Problem("NAME", repr(name), why))


def _own_claim(cluster: Cluster, job: Mapping[str, Any], name: str, namespace: str) -> str:
    """JobSet makes one for each TrainJob from Trainer 2.2 on; up to 2.1 it is a person's, called like the runtime."""
    for claim in (f"{labels.OWN_CLAIM}{name}", text(job, "spec", "runtimeRef", "name")):
        if cluster.get_claim(claim, namespace) is not None:
            return claim
    raise _no_model(name, f"its claim {labels.OWN_CLAIM}{name} is gone, and its model with it")


def _workspaces(value: Any) -> Iterator[Workspace]:
    """What pods mount at `/workspace`, in whichever dialect they are changed."""
    if isinstance(value, list | tuple):
        for inner in value:
            yield from _workspaces(inner)
    elif isinstance(value, Mapping):
        mounts = [mount for one in rows(value, "containers") for mount in rows(one, "volumeMounts")]
        for mount in mounts:
            if mount.get("mountPath") == WORKSPACE:
                yield from _of_volume(value, mount)
        for inner in value.values():
            yield from _workspaces(inner)


def _of_volume(pod: Mapping[str, Any], mount: Mapping[str, Any]) -> Iterator[Workspace]:
    for volume in rows(pod, "volumes"):
        claim = text(volume, "persistentVolumeClaim", "claimName")
        folder = text(volume, "hostPath", "path")
        if volume.get("name") == mount.get("name") and (claim or folder):
            yield Workspace(claim=claim, node_path=folder, sub_path=text(mount, "subPath"))
