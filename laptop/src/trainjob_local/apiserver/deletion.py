"""Effects of a DELETE: the object is removed, or marked for a later removal.

A marked object is removed when its finalizers are gone and, if it is a pod, the kubelet has ended it.
All functions are pure.

Source: k8s.io/apiserver 0.36 `pkg/registry/rest/delete.go`, `pkg/registry/generic/registry/store.go`, and
k8s.io/kubernetes 1.36 `pkg/registry/core/pod/strategy.go` (CheckGracefulDelete).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from trainjob_local.apiserver.resources import Resource
from trainjob_local.apiserver.status_errors import FieldProblem, StatusError, conflict, invalid
from trainjob_local.objects import format_timestamp, parse_timestamp

__all__ = ["FOREGROUND", "ORPHAN", "DeleteOptions", "check_preconditions", "is_removable", "mark_deleted"]

Json = dict[str, Any]

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
_POLICIES = ("Foreground", "Background", "Orphan")
_OPTIONS = Resource("meta.k8s.io", "v1", "deleteoptions", "DeleteOptions")


@dataclass(frozen=True)
class DeleteOptions:
    """The options of a deletion.

    Attributes:
        uid: required uid of the object; empty for any.
        resource_version: required version of the object; empty for any.
        grace: grace period of a pod in seconds; None for the pod's own period, 0 to remove it now.
        propagation: `Background`, `Foreground`, `Orphan`, or empty for the resource's default.
        dry_run: whether to check everything and change nothing.
    """

    uid: str = ""
    resource_version: str = ""
    grace: int | None = None
    propagation: str = ""
    dry_run: bool = False

    def check(self) -> None:
        """Check the propagation policy.

        Raises:
            StatusError: 422 if the policy is unknown.
        """
        if self.propagation and self.propagation not in _POLICIES:
            supported = ", ".join(f'"{policy}"' for policy in (*_POLICIES, "nil"))
            detail = f"supported values: {supported}"
            problem = FieldProblem("propagationPolicy", "Unsupported value", f'"{self.propagation}"', detail)
            raise invalid(_OPTIONS, "", [problem])


def check_preconditions(resource: Resource, body: Mapping[str, Any], options: DeleteOptions) -> None:
    """Check that the object has the uid and the version that the options require.

    Raises:
        StatusError: 409 if it has another uid or version.
    """
    metadata = body["metadata"]
    checks = (
        ("UID", options.uid, metadata["uid"], "deleted and then recreated"),
        ("ResourceVersion", options.resource_version, metadata.get("resourceVersion", ""), "modified"),
    )
    for what, required, found, happened in checks:
        if required and required != found:
            why = f"the {what} in the precondition ({required}) does not match the {what} in record ({found})."
            error = conflict(resource, metadata["name"], f"{why} The object might have been {happened}")
            raise _with_kind_name(error, resource)


def _with_kind_name(error: StatusError, resource: Resource) -> StatusError:
    """Return the error with the kind instead of the plural, as kube-apiserver writes it."""
    qualified = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    text = error.message.replace(f" on {resource.qualified_name} ", f" on {qualified} ")
    return StatusError(error.code, error.reason, text, details={**(error.details or {}), "kind": resource.kind})


def mark_deleted(resource: Resource, body: Mapping[str, Any], options: DeleteOptions, now: datetime) -> Json:
    """Return the object after the DELETE, with deletion time and finalizers.

    [is_removable][] then decides whether it is removed. A second DELETE can only shorten the grace period.
    """
    metadata = dict(body["metadata"])
    _set_finalizers(metadata, options.propagation or ("Orphan" if resource.orphans_dependents else ""))
    first = "deletionTimestamp" not in metadata
    grace = _grace(resource, body, options)
    if first:
        metadata["deletionTimestamp"] = format_timestamp(now + timedelta(seconds=grace))
        metadata["deletionGracePeriodSeconds"] = grace
        if metadata.get("generation"):
            metadata["generation"] += 1
    elif grace < metadata["deletionGracePeriodSeconds"] and options.grace is not None:
        requested_at = parse_timestamp(metadata["deletionTimestamp"]) - timedelta(
            seconds=metadata["deletionGracePeriodSeconds"]
        )
        metadata["deletionTimestamp"] = format_timestamp(requested_at + timedelta(seconds=grace))
        metadata["deletionGracePeriodSeconds"] = grace
    return {**body, "metadata": metadata}


def is_removable(body: Mapping[str, Any]) -> bool:
    """Return whether a deleted object can be removed.

    It can if it has no finalizer and no grace period, and, if it is a namespace, no content.
    """
    metadata = body["metadata"]
    return (
        "deletionTimestamp" in metadata
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
        and not (body.get("kind") == "Namespace" and (body.get("spec") or {}).get("finalizers"))
    )


def _set_finalizers(metadata: Json, propagation: str) -> None:
    if not propagation:
        return
    finalizers = [name for name in metadata.get("finalizers") or () if name not in (FOREGROUND, ORPHAN)]
    finalizers += {"Foreground": [FOREGROUND], "Orphan": [ORPHAN]}.get(propagation, [])
    metadata.pop("finalizers", None)
    if finalizers:
        metadata["finalizers"] = finalizers


def _grace(resource: Resource, body: Mapping[str, Any], options: DeleteOptions) -> int:
    """Return the grace period in seconds; it is 0 unless a pod is on a node and has not ended."""
    if resource.plural != "pods":
        return 0
    spec, phase = body.get("spec") or {}, (body.get("status") or {}).get("phase")
    if not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
        return 0
    seconds = options.grace if options.grace is not None else spec.get("terminationGracePeriodSeconds", 30)
    return 1 if seconds < 0 else int(seconds)
