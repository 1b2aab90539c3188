"""WorkspaceVolume of a step, and further volumes of its pods."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, field_validator, model_validator
from typing_extensions import Self

from trainjob.addresses import CLAIM_NAME
from trainjob.errors import InvalidSpec, Problem
from trainjob.spec.base import Spec, invalid_field
from trainjob.spec.kubernetes_values import POD_SPEC, check_kubernetes_value

WORKSPACE = "/workspace"
# A volume's name is a DNS label (Kubernetes 1.36, pkg/apis/core/validation).
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
WORKSPACE_VOLUME, CODE_VOLUME, CHANGES_VOLUME = "workspace", "trainjob-code", "trainjob-changes"
# The first three are our volumes. The others are the Trainer's: it replaces a volume of the same name with its own, or
# JobSet refuses to create the Job (Trainer 2.3, pkg/runtime/framework/plugins; JobSet 0.12 webhook).
_RESERVED_NAMES = (
    WORKSPACE_VOLUME,
    CODE_VOLUME,
    CHANGES_VOLUME,
    "initializer",
    "kubeflow-trainer-token",
    "mpi-ssh-auth",
    "mpi-hostfile",
)
# Lists of a pod patch have at most 128 items (Trainer 2.2, pkg/apis/trainer/v1alpha1/trainjob_types.go); one item is
# the workspace.
_MAX_VOLUMES = 127
# Each further mount of a volume needs a separate patch. A TrainJob has at most 16 patches, and Kueue adds one.
_MAX_MOUNTS_PER_VOLUME = 15


def _validate_absolute_path(path: str) -> str:
    normal = "/" + posixpath.normpath(path).strip("/")
    if not path.startswith("/") or ":" in path or ".." in path.split("/") or normal == "/":
        raise invalid_field("", path, "it must be an absolute path other than /, without ':' and '..', such as /data")
    return normal


def _validate_relative_path(path: str) -> str:
    if path.startswith("/") or ".." in path.split("/"):
        raise invalid_field("", path, "it must be a relative path in the volume, without '..'")
    normal = posixpath.normpath(path)
    return "" if normal == "." else normal


def validate_path_below(path: str, folder: str) -> str:
    """Return a path below a folder of the workspace, without `/` at its ends.

    Args:
        path: the path.
        folder: name of the folder below `/workspace`; empty for the workspace itself.

    Raises:
        InvalidSpec: the path leads out of the folder, or contains `=`, at which an option would be divided.
    """
    if path.startswith("/") or ".." in path.split("/") or "=" in path:
        root = f"/workspace/{folder}".rstrip("/")
        raise invalid_field("", path, f"it must be a path below {root}, without '..' and '='")
    return path.strip("/")


_AbsolutePath = Annotated[str, AfterValidator(_validate_absolute_path)]
_RelativePath = Annotated[str, AfterValidator(_validate_relative_path)]


class WorkspaceVolume(Spec):
    """An existing volume that is mounted at `/workspace`.

    Its folders are `dataset/`, `model/` and `output/`. A plain string is the name of the PersistentVolumeClaim.

    Attributes:
        claim: name of a PersistentVolumeClaim.
        sub_path: folder in the volume that is mounted; created if it does not exist. Empty means the whole volume.
        node_path: existing folder of the node, instead of a PersistentVolumeClaim. It is for clusters of one machine,
            such as the laptop cluster, because every pod uses the folder of the node on which it runs.
    """

    field_aliases: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("name", "pvc", "claim_name", "persistent_volume_claim"), "claim"),
        "path": "sub_path",
    }

    claim: str = ""
    sub_path: _RelativePath = ""
    node_path: str = ""

    @field_validator("claim")
    @classmethod
    def _validate_claim(cls, claim: str) -> str:
        if claim and not CLAIM_NAME.fullmatch(claim):
            raise invalid_field(
                "", claim, "it must be the name of a PersistentVolumeClaim: lower case letters, digits and -"
            )
        return claim

    @field_validator("node_path")
    @classmethod
    def _validate_node_path(cls, path: str) -> str:
        return path and _validate_absolute_path(path)

    @model_validator(mode="after")
    def _validate_one_location(self) -> Self:
        if not self.location:
            raise invalid_field(
                "claim", self.claim, "name a PersistentVolumeClaim, or give a folder of the node as node_path"
            )
        if self.claim and self.node_path:
            raise invalid_field(
                "node_path",
                self.node_path,
                f"the workspace is already the PVC {self.claim}: give only one of claim and node_path",
            )
        return self

    @property
    def location(self) -> str:
        """Name of the claim, or path of the node's folder."""
        return self.claim or self.node_path


class Volume(Spec):
    """A volume of a step's pods, with its mount.

    Several entries with the same name are several mounts of one volume.

    Attributes:
        name: name of the volume in the pod.
        source: a Kubernetes volume without its name, such as `{"persistentVolumeClaim": {"claimName": "c"}}`,
            `{"secret": {"secretName": "s"}}` or `{"emptyDir": {}}`.
        mount_path: absolute path of the mount.
        sub_path: folder or file in the volume that is mounted; empty means the whole volume.
        read_only: whether the mount is read-only.
    """

    field_aliases: ClassVar[Mapping[str, str]] = {"path": "mount_path", "claim": "source", "mount": "mount_path"}

    name: str
    source: Mapping[str, Any]
    mount_path: _AbsolutePath
    sub_path: _RelativePath = ""
    read_only: bool = False

    @field_validator("name")
    @classmethod
    def _validate_name(cls, name: str) -> str:
        if not _LABEL.fullmatch(name):
            rule = "at most 63 characters: lower case letters, digits and -, with a letter or digit at both ends"
            raise invalid_field("", name, rule)
        if name in _RESERVED_NAMES:
            raise invalid_field("", name, "the step's pods already have a volume of this name; choose another name")
        return name

    @field_validator("source")
    @classmethod
    def _validate_source(cls, source: Mapping[str, Any]) -> Mapping[str, Any]:
        kinds = [str(kind) for kind in source]
        if len(kinds) != 1:
            raise invalid_field("", kinds, "it must have exactly one kind of volume, such as {'emptyDir': {}}")
        if not isinstance(source[kinds[0]], Mapping):
            raise invalid_field(kinds[0], source[kinds[0]], "it must be a mapping; {} means the defaults")
        plain: dict[str, Any] = check_kubernetes_value({"name": "volume", **source}, f"{POD_SPEC}.volumes[]")
        return {kinds[0]: plain[kinds[0]]}


def _validate_volumes(volumes: tuple[Volume, ...]) -> tuple[Volume, ...]:
    """Return the volumes if one pod can have all of them.

    Raises:
        InvalidSpec: two volumes are mounted at the same path, two have the same name and different sources, or there
            are too many.
    """
    if len(volumes) > _MAX_VOLUMES:
        raise invalid_field("", f"{len(volumes)} volumes", f"a TrainJob can have at most {_MAX_VOLUMES}")
    problems: list[Problem] = []
    for number, volume in enumerate(volumes):
        for field, rule in _find_conflicts(volume, volumes[:number]).items():
            problems += invalid_field(f"[{number}].{field}", getattr(volume, field), rule).problems
    if problems:
        raise InvalidSpec(problems)
    return volumes


def _find_conflicts(volume: Volume, earlier: tuple[Volume, ...]) -> dict[str, str]:
    """Return the broken rule of each field that conflicts with the volumes before this one."""
    found = {}
    for number, other in enumerate(earlier):
        if other.mount_path == volume.mount_path:
            found["mount_path"] = f"volumes[{number}] is mounted there: choose another path"
        if other.name == volume.name and other.source != volume.source:
            found["name"] = f"volumes[{number}] has the same name and another source: choose another name"
    if sum(other.name == volume.name for other in earlier) >= _MAX_MOUNTS_PER_VOLUME:
        found["name"] = (
            f"one volume can be mounted at most {_MAX_MOUNTS_PER_VOLUME} times: give further mounts another name"
        )
    return found


def check_workspace_is_free(volumes: tuple[Volume, ...], *, taken_by: str) -> None:
    """Refuse a volume at `/workspace` if another volume is mounted there.

    Args:
        volumes: the step's volumes.
        taken_by: name of the other volume, for the error; empty if there is none.

    Raises:
        InvalidSpec: a volume is mounted at `/workspace`; the error names the mount.
    """
    at = next((number for number, volume in enumerate(volumes) if volume.mount_path == WORKSPACE), None)
    if taken_by and at is not None:
        raise invalid_field(f"volumes[{at}].mount_path", WORKSPACE, f"{taken_by} is mounted there: choose another path")


WorkspaceField = Annotated[
    WorkspaceVolume, BeforeValidator(lambda given: {"claim": given} if isinstance(given, str) else given)
]
Volumes = Annotated[tuple[Volume, ...], AfterValidator(_validate_volumes)]
"""Volumes of a step's pods besides its workspace."""
