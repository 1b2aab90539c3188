"""What a controller decides: plain values, carried out by the loop. So the deciding functions stay pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from trainjob_local.objects import Json

__all__ = ["Bind", "Create", "Decision", "Delete", "Note", "Patch", "Write", "set_status"]


@dataclass(frozen=True)
class Note:
    """An event to write.

    Attributes:
        resource: plural of the resource of `about`.
        about: the object it is about.
        kind: `Normal` or `Warning`.
        reason: machine-readable reason.
        message: text; `{name}` is the name of what was created, `{error}` why it was refused.
        component: which controller reports it, such as `job-controller`.
        action: set for components that write events of the new kind.
    """

    resource: str
    about: Json
    kind: str
    reason: str
    message: str
    component: str
    action: str = ""


@dataclass(frozen=True)
class Create:
    """Create an object.

    Attributes:
        resource: plural.
        body: the object.
        announce: event once it is there.
        complain: event when it is refused; the writes after it are not carried out then.
        may_exist: an object of that name is as good.
    """

    resource: str
    body: Json
    announce: Note | None = None
    complain: Note | None = None
    may_exist: bool = False


@dataclass(frozen=True)
class Patch:
    """Change an object, or its status, by a JSON merge patch; with `complain` as in `Create`."""

    resource: str
    about: Json
    change: Json
    subresource: str = ""
    complain: Note | None = None


@dataclass(frozen=True)
class Delete:
    """Delete an object and what it owns; `announce` as in `Create`."""

    resource: str
    about: Json
    propagation: str = "Background"
    grace: int | None = None
    announce: Note | None = None


@dataclass(frozen=True)
class Bind:
    """Put a pod on a node."""

    pod: Json
    node: str


Write: TypeAlias = "Create | Patch | Delete | Bind | Note"


@dataclass(frozen=True)
class Decision:
    """What to do now, and when to look again.

    Attributes:
        writes: in this order; a refused one ends the row and it is tried again later.
        again: seconds until the next look, or None for the next change.
    """

    writes: Sequence[Write] = field(default_factory=tuple)
    again: float | None = None


def set_status(resource: str, about: Json, status: Json) -> Patch:
    """Replaces the status of an object."""
    gone = dict.fromkeys(set(about.get("status") or {}) - set(status))
    return Patch(resource, about, {"status": {**gone, **status}}, subresource="status")
