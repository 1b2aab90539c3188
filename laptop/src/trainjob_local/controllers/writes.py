"""Decisions of the controllers, as plain values that the loop carries out.

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
        resource: plural of the resource of `about`.
        about: the object that the event is about.
        kind: `Normal` or `Warning`.
        reason: machine-readable reason.
        message: text; `{name}` is the name of the created object, `{error}` the reason why it was refused.
        component: the controller that reports the event, such as `job-controller`.
        action: set for components that write events of the new kind.
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
        announce: event after the object is created.
        complain: event if the creation is refused; the loop then skips the writes after it.
        may_exist: whether an existing object of that name is accepted.
    """

    resource: str
    body: Json
    success_event: EventWrite | None = None
    failure_event: EventWrite | None = None
    may_exist: bool = False


@dataclass(frozen=True)
class Patch:
    """Change of an object or its status by a JSON merge patch; `complain` as in `Create`."""

    resource: str
    obj: Json
    change: Json
    subresource: str = ""
    failure_event: EventWrite | None = None


@dataclass(frozen=True)
class Delete:
    """Deletion of an object and of the objects that it owns; `announce` as in `Create`."""

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
    """The writes to carry out now, and the time of the next reconciliation.

    Attributes:
        writes: the writes in their order; if one is refused, the loop skips the rest and reconciles again later.
        again: seconds until the next reconciliation, or None to wait for the next change.
    """

    writes: Sequence[Write] = field(default_factory=tuple)
    requeue_after: float | None = None


def patch_status(resource: str, obj: Json, status: Json) -> Patch:
    """Return the patch that replaces the status of an object."""
    gone = dict.fromkeys(set(obj.get("status") or {}) - set(status))
    return Patch(resource, obj, {"status": {**gone, **status}}, subresource="status")
