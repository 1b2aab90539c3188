"""Security contexts of a step's pods and containers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from trainjob.spec.base import Spec, invalid_field
from trainjob.spec.kubernetes_values import POD_SPEC, as_in_kubernetes

_Id = Annotated[int, Field(ge=0, le=2**31 - 1)]  # kubernetes 1.36, apimachinery/pkg/util/validation (IsValidUserID)
_CONTEXT, _CONTAINER_CONTEXT = f"{POD_SPEC}.securityContext", f"{POD_SPEC}.containers[].securityContext"


class _Identity(Spec):
    run_as_user: _Id | None = None
    run_as_group: _Id | None = None
    run_as_non_root: bool | None = None
    seccomp_profile: Annotated[Mapping[str, Any], as_in_kubernetes(f"{_CONTEXT}.seccompProfile")] | None = None
    app_armor_profile: Annotated[Mapping[str, Any], as_in_kubernetes(f"{_CONTEXT}.appArmorProfile")] | None = None
    se_linux_options: Annotated[Mapping[str, Any], as_in_kubernetes(f"{_CONTEXT}.seLinuxOptions")] | None = None
    windows_options: Annotated[Mapping[str, Any], as_in_kubernetes(f"{_CONTEXT}.windowsOptions")] | None = None


class PodSecurityContext(_Identity):
    """Security context of a pod.

    The fields are those of the Kubernetes API. Values that are objects there are dicts with the names of the API, such
    as `{"type": "RuntimeDefault"}`.

    Attributes:
        run_as_user: ID of the user of all containers.
        run_as_group: ID of their group.
        run_as_non_root: whether the kubelet refuses to start a container as root.
        seccomp_profile: seccomp profile of all containers.
        app_armor_profile: AppArmor profile of all containers.
        se_linux_options: SELinux labels of all containers.
        windows_options: options of containers of Windows.
        fs_group: ID of the group that owns the files of the volumes.
        fs_group_change_policy: when the kubelet changes the owner of the files: `Always` at each start, or
            `OnRootMismatch` only if the owner of the volume's folder differs, which is faster with many files.
        supplemental_groups: IDs of further groups of all processes.
        supplemental_groups_policy: whether the groups of the user in the image count, too: `Merge` (the default of
            Kubernetes) or `Strict`.
        se_linux_change_policy: how the volumes get the SELinux label: `Recursive` or `MountOption`.
        sysctls: kernel parameters of the pod, such as `{"name": "net.core.somaxconn", "value": "1024"}`.
    """

    fs_group: _Id | None = None
    fs_group_change_policy: Literal["Always", "OnRootMismatch"] | None = None
    supplemental_groups: Sequence[_Id] = ()
    supplemental_groups_policy: Literal["Merge", "Strict"] | None = None
    se_linux_change_policy: Literal["Recursive", "MountOption"] | None = None
    sysctls: Annotated[Sequence[Mapping[str, Any]], as_in_kubernetes(f"{_CONTEXT}.sysctls")] = ()


class SecurityContext(_Identity):
    """Security context of a container; its fields take precedence over those of the pod.

    Attributes:
        run_as_user: ID of the user.
        run_as_group: ID of the group.
        run_as_non_root: whether the kubelet refuses to start the container as root.
        seccomp_profile: seccomp profile.
        app_armor_profile: AppArmor profile.
        se_linux_options: SELinux labels.
        windows_options: options of a container of Windows.
        allow_privilege_escalation: whether a process can get more privileges than its parent.
        capabilities: Linux capabilities, such as `{"drop": ["ALL"]}`.
        privileged: whether the container has all privileges of the node's root.
        read_only_root_filesystem: whether only mounted volumes are writable.
        proc_mount: kind of the mount at `/proc`: `Default` or `Unmasked`.
    """

    allow_privilege_escalation: bool | None = None
    capabilities: Annotated[Mapping[str, Any], as_in_kubernetes(f"{_CONTAINER_CONTEXT}.capabilities")] | None = None
    privileged: bool | None = None
    read_only_root_filesystem: bool | None = None
    proc_mount: Literal["Default", "Unmasked"] | None = None


def _refuse_other_objects(value: Any) -> Any:
    """Refuse objects of other classes, whose unknown fields would be lost silently."""
    if value is None or isinstance(value, Spec | Mapping):
        return value
    raise invalid_field("", f"a {type(value).__name__}", "give a dict, or an object of trainjob.spec")


PodSecurityContextField = Annotated[PodSecurityContext, BeforeValidator(_refuse_other_objects)]
SecurityContextField = Annotated[SecurityContext, BeforeValidator(_refuse_other_objects)]
