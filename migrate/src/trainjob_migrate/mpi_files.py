"""Hostfile and ssh keys of an MPI job: files that the old operators mount, and where the Trainer mounts them.

Sources: mpi-operator 0.8 pkg/controller/mpi_job_controller.go; training-operator 1.9 pkg/controller.v1/mpi; Trainer
pkg/runtime/framework/plugins/mpi/mpi.go and pkg/constants/constants.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainjob.status.nested_fields import get_list, get_mapping, get_str
from trainjob_migrate.container import find_container
from trainjob_migrate.draft import Draft
from trainjob_migrate.field_records import Path, get_value, iterate_leaves
from trainjob_migrate.replicas import Replicas

HOSTFILE_VOLUME = "mpi-hostfile"
"""Name of the volume that the Trainer adds to the launcher's pod."""
_KEYS_VOLUME = "mpi-ssh-auth"  # the Trainer adds it to the pods of the launcher and of the nodes
_KEYS_FOLDER = "/etc/mpi-ssh-auth"
_COPIES = "mpi-ssh-keys"  # init container and volume
_COPY = 'cp -L "$0"/* "$1"/ && chmod 600 "$1"/* && chmod 700 "$1"'
_OLD_HOSTFILE_VOLUME, _OLD_KEYS_VOLUME = "mpi-job-config", "ssh-auth"
# A pod has the quality of service Guaranteed only if all its containers have limits, and quotas demand them.
_COPIED_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_OPERATOR_OBJECTS = {
    **dict.fromkeys(("secret", "secretRef", "secretKeyRef"), "-ssh"),
    **dict.fromkeys(("configMap", "configMapRef", "configMapKeyRef"), "-config"),
}
"""End of the object's name after that of the job, by the field with the reference."""
_OBJECT_REASON = (
    "the old operator creates this object for the job, and the Trainer does not: remove the reference; the hostfile is "
    "/etc/mpi/hostfile of the launcher, and the ssh keys are in the folder of sshAuthMountPath"
)
_ANY_GROUP = 1000  # each container of a pod is a member of its fsGroup


@dataclass(frozen=True)
class MpiPod:
    """The pod template of a role.

    Attributes:
        role: the replicated job.
        replicas: the replicas of the source.
        container: the container in which MPI runs.
    """

    role: str
    replicas: Replicas
    container: Mapping[str, Any]

    @property
    def path(self) -> Path:
        """Path of the pod template in the source."""
        return (*self.replicas.path, "template")

    def add_operator_default(self, draft: Draft, target: tuple[str, ...], value: Any) -> None:
        """Add a value that the old operator set by itself, so that no field of the source has it."""
        if value:
            draft.add_part((*self.path, "by the operator"), target, value, patchable=False, role=self.role)


def provide_keys(draft: Draft, pods: tuple[MpiPod, ...], folder: str) -> bool:
    """Make the ssh keys readable for the users of the pods.

    The Trainer mounts the private key for root and its group, with mode 0640 (2.3) or 0644 (2.0 to 2.2). A user other
    than root can read it as a member of the pod's fsGroup. As root, ssh refuses a private key that others can read, so
    an init container copies the keys.

    Args:
        draft: the draft; its shape has the folder in which the Trainer mounts the keys.
        pods: launcher and workers.
        folder: `sshAuthMountPath` of the source.

    Returns:
        Whether the keys are copied.
    """
    users = {pod.role: _find_user(pod, folder) for pod in pods}
    for pod in pods:
        context = get_mapping(pod.replicas.template, "spec", "securityContext")
        if users[pod.role] != 0 and "fsGroup" not in context:
            group = {"fsGroup": users[pod.role] or _ANY_GROUP}
            pod.add_operator_default(draft, ("pod", "spec", "securityContext"), group)
    if 0 not in users.values():
        return False
    mpi = {**draft.shape.policy["mpi"], "sshAuthMountPath": _KEYS_FOLDER}
    draft.shape = replace(draft.shape, policy={**draft.shape.policy, "mpi": mpi})
    for pod in pods:
        _copy_keys(draft, pod, folder)
    draft.add_finding(
        "ssh-keys",
        f"As root, launcher and workers read their ssh keys in {folder}.",
        "OpenSSH refuses a private key that a group or others can read. The Trainer mounts it with mode 0640 (2.3) or "
        "0644 (2.0 to 2.2).",
        f"The init container {_COPIES} copies the keys to {folder} with mode 0600. It runs sh, cp and chmod of the "
        "job's image.",
    )
    return True


def _find_user(pod: MpiPod, folder: str) -> int | None:
    """Return the user that runs MPI; None if it is not root, and only the image has it."""
    for context in (
        pod.container.get("securityContext"),
        get_mapping(pod.replicas.template, "spec", "securityContext"),
    ):
        user = context.get("runAsUser") if isinstance(context, Mapping) else None
        if isinstance(user, int) and not isinstance(user, bool):
            return user
        if isinstance(context, Mapping) and context.get("runAsNonRoot") is True:
            return None
    # mpi-operator mounts keys that root can use only in this folder.
    return 0 if folder.rstrip("/") == "/root/.ssh" else None


def _copy_keys(draft: Draft, pod: MpiPod, folder: str) -> None:
    mount = {"name": _COPIES, "mountPath": folder}
    place, _ = find_container(pod.replicas.template, get_str(pod.container, "name"))
    for number, given in enumerate(get_list(pod.container, "volumeMounts")):
        if get_str(given, "mountPath").rstrip("/") == folder.rstrip("/"):
            reason = "the ssh keys of the Trainer are in this folder: remove the mount"
            draft.fields.mark_refused((*pod.path, "spec", "containers", place, "volumeMounts", number), reason)
    container = {
        "name": _COPIES,
        "image": pod.container.get("image"),
        **{field: pod.container[field] for field in ("imagePullPolicy",) if field in pod.container},
        "command": ["sh", "-c", _COPY, _KEYS_FOLDER, folder],
        **_find_resources(pod.container),
        "volumeMounts": [{"name": _KEYS_VOLUME, "mountPath": _KEYS_FOLDER}, dict(mount)],
    }
    context = pod.container.get("securityContext")
    if isinstance(context, Mapping) and "runAsUser" in context:
        container["securityContext"] = {"runAsUser": context["runAsUser"]}
    pod.add_operator_default(draft, ("pod", "spec", "initContainers"), [container])
    pod.add_operator_default(draft, ("pod", "spec", "volumes"), [{"name": _COPIES, "emptyDir": {"medium": "Memory"}}])
    pod.add_operator_default(draft, ("container", "volumeMounts"), [mount])


def _find_resources(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return the container's cpu and memory, for the pod's quality of service and quota."""
    kept = {}
    for kind in ("requests", "limits"):
        given = get_mapping(container, "resources", kind)
        if values := {name: given[name] for name in _COPIED_RESOURCES if name in given}:
            kept[kind] = values
    return {"resources": kept} if kept else {}


def use_trainer_volumes(draft: Draft, pod: MpiPod, *, copied: bool, uses_kubectl: bool) -> Mapping[str, Any]:
    """Return the pod template with the Trainer's volumes in containers other than MPI's.

    The draft gets the names of the Trainer's volumes.
    """
    names = {} if uses_kubectl else {_OLD_KEYS_VOLUME: _COPIES if copied else _KEYS_VOLUME}
    if pod.role == "launcher":
        names[_OLD_HOSTFILE_VOLUME] = HOSTFILE_VOLUME
    spec = get_mapping(pod.replicas.template, "spec")
    own = [get_str(volume, "name") for volume in get_list(spec, "volumes")]
    for number, name in enumerate(own):
        if name in (_KEYS_VOLUME, HOSTFILE_VOLUME, _COPIES):
            reason = "the pod of a TrainJob has another volume of this name: use another name"
            draft.fields.mark_refused((*pod.path, "spec", "volumes", number, "name"), reason)
    names = {old: new for old, new in names.items() if old not in own}
    draft.added_volumes = frozenset(names.values())
    renamed = {
        field: [one if one is pod.container else _rename_mounts(one, names) for one in spec[field]]
        for field in ("initContainers", "containers")
        if isinstance(spec.get(field), list)
    }
    return {**pod.replicas.template, "spec": {**spec, **renamed}} if renamed else pod.replicas.template


def _rename_mounts(container: Any, names: Mapping[str, str]) -> Any:
    mounts = container.get("volumeMounts") if isinstance(container, Mapping) else None
    if not isinstance(mounts, list):
        return container

    def rename(mount: Any) -> Any:
        old = get_str(mount, "name")
        is_missing = old == _OLD_HOSTFILE_VOLUME and get_str(mount, "subPath") not in ("", "hostfile")
        return {**mount, "name": names[old]} if old in names and not is_missing else mount

    return {**container, "volumeMounts": [rename(mount) for mount in mounts]}


def refuse_operator_objects(draft: Draft, pod: MpiPod) -> None:
    """Refuse references of a pod to objects that the old operator creates for the job.

    A pod whose volume or variable refers to a missing object waits forever.
    """
    spec = get_mapping(pod.replicas.template, "spec")
    for leaf in iterate_leaves(spec):
        end = _OPERATOR_OBJECTS.get(str(leaf[-2])) if len(leaf) > 1 and leaf[-1] in ("name", "secretName") else None
        if end and get_value(spec, leaf) == f"{draft.source_name}{end}":
            draft.fields.mark_refused((*pod.path, "spec", *leaf), _OBJECT_REASON)
