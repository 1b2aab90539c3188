"""Security contexts of a step's pods and containers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from trainjob.spec.base import Spec, invalid_field, to_json_value

_Id = Annotated[int, Field(ge=0, le=2**31 - 1)]  # kubernetes 1.36, apimachinery/pkg/util/validation (IsValidUserID)
_Options = Annotated[Mapping[str, Any], AfterValidator(to_json_value)]


class _Identity(Spec):
    run_as_user: _Id | None = None
    run_as_group: _Id | None = None
    run_as_non_root: bool | None = None
    seccomp_profile: _Options | None = None
    app_armor_profile: _Options | None = None
    se_linux_options: _Options | None = None


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
        fs_group: ID of the group that owns the files of the volumes.
        fs_group_change_policy: when the kubelet changes the owner of the files: `Always` at each start, or
            `OnRootMismatch` only if the owner of the volume's folder differs, which is faster with many files.
        supplemental_groups: IDs of further groups of all processes.
    """

    fs_group: _Id | None = None
    fs_group_change_policy: Literal["Always", "OnRootMismatch"] | None = None
    supplemental_groups: Sequence[_Id] = ()


class SecurityContext(_Identity):
    """Security context of a container; its fields take precedence over those of the pod.

    Attributes:
        run_as_user: ID of the user.
        run_as_group: ID of the group.
        run_as_non_root: whether the kubelet refuses to start the container as root.
        seccomp_profile: seccomp profile.
        app_armor_profile: AppArmor profile.
        se_linux_options: SELinux labels.
        allow_privilege_escalation: whether a process can get more privileges than its parent.
        capabilities: Linux capabilities, such as `{"drop": ["ALL"]}`.
        privileged: whether the container has all privileges of the node's root.
        read_only_root_filesystem: whether only mounted volumes are writable.
    """

    allow_privilege_escalation: bool | None = None
    capabilities: _Options | None = None
    privileged: bool | None = None
    read_only_root_filesystem: bool | None = None


def _refuse_other_objects(value: Any) -> Any:
    """Refuse objects of other classes, whose unknown fields would be lost silently."""
    if value is None or isinstance(value, Spec | Mapping):
        return value
    raise invalid_field("", f"a {type(value).__name__}", "give a dict, or an object of trainjob.spec")


PodSecurityContextField = Annotated[PodSecurityContext, BeforeValidator(_refuse_other_objects)]
SecurityContextField = Annotated[SecurityContext, BeforeValidator(_refuse_other_objects)]
