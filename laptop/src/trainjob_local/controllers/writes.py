"""Decisions of the controllers, as plain values that the controller manager applies.

So the functions that decide stay pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from trainjob_local.objects import Json

__all__ = ["Bind", "Create", "Decision", "Delete", "EventWrite", "Patch", "Write", "patch_status"]


@dataclass(frozen=True)
class EventWrite:
    """An event to record.

    Attributes:
        resource: plural of the resource of `obj`.
        obj: the object that the event is about.
        kind: `Normal` or `Warning`.
        reason: machine-readable reason.
        message: text; `{name}` stands for the name of the created object, `{error}` for the reason of the rejection.
        component: the controller that reports the event, such as `job-controller`.
        action: action of an events.k8s.io/v1 event; empty for components that write core/v1 events.
    """

    resource: str
    obj: Json
    kind: str
    reason: str
    message: str
    component: str
    action: str = ""


@dataclass(frozen=True)
class Create:
    """Creation of an object.

    Attributes:
        resource: plural of the resource.
        body: the object.
        success_event: event after the object is created.
        failure_event: event if the creation is rejected; the controller manager then skips the writes after it.
        may_exist: whether an existing object of that name is accepted.
    """

    resource: str
    body: Json
    success_event: EventWrite | None = None
    failure_event: EventWrite | None = None
    may_exist: bool = False


@dataclass(frozen=True)
class Patch:
    """Change of an object or its status by a JSON merge patch.

    Attributes:
        resource: plural of the resource.
        obj: the object to change.
        change: the merge patch.
        subresource: `status` to change the status; empty for the object itself.
        failure_event: event if the change is rejected; the controller manager then skips the writes after it.
    """

    resource: str
    obj: Json
    change: Json
    subresource: str = ""
    failure_event: EventWrite | None = None


@dataclass(frozen=True)
class Delete:
    """Deletion of an object.

    Attributes:
        resource: plural of the resource.
        obj: the object to delete.
        propagation: how the objects that it owns are deleted: `Background`, `Foreground` or `Orphan`.
        grace: grace period of a pod in seconds; None for the default.
        success_event: event after the deletion is accepted.
    """

    resource: str
    obj: Json
    propagation: str = "Background"
    grace: int | None = None
    success_event: EventWrite | None = None


@dataclass(frozen=True)
class Bind:
    """Binding of a pod to a node."""

    pod: Json
    node: str


Write: TypeAlias = "Create | Patch | Delete | Bind | EventWrite"


@dataclass(frozen=True)
class Decision:
    """The writes to apply now, and the time of the next reconciliation.

    Attributes:
        writes: the writes in their order; if a write is rejected, the controller manager skips the rest and reconciles
            again later.
        requeue_after: seconds until the next reconciliation, or None to wait for the next change.
    """

    writes: Sequence[Write] = field(default_factory=tuple)
    requeue_after: float | None = None


def patch_status(resource: str, obj: Json, status: Json) -> Patch:
    """Return the patch that replaces the status of an object."""
    removed = dict.fromkeys(set(obj.get("status") or {}) - set(status))
    return Patch(resource, obj, {"status": {**removed, **status}}, subresource="status")
