"""Conditions of statuses; pure functions over plain dicts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from trainjob_local.objects import Json, timestamp

__all__ = ["condition", "find_condition", "is_true", "with_condition", "without_condition"]


def condition(kind: str, status: bool, reason: str, message: str) -> Json:
    """Builds a condition; its time is set by `with_condition`."""
    return {"type": kind, "status": str(status), "reason": reason, "message": message}


def find_condition(conditions: Sequence[Json], kind: str) -> Json | None:
    """Finds the condition of a type."""
    return next((one for one in conditions if one["type"] == kind), None)


def is_true(conditions: Sequence[Json], kind: str) -> bool:
    """Tells whether a condition is there and true."""
    found = find_condition(conditions, kind)
    return found is not None and found["status"] == "True"


def with_condition(conditions: Sequence[Json], new: Json, now: datetime) -> list[Json]:
    """Sets a condition; its time changes with its status only.

    Source: k8s.io/apimachinery 0.36 `pkg/api/meta/conditions.go` (SetStatusCondition).
    """
    known = find_condition(conditions, new["type"])
    unchanged = known is not None and known["status"] == new["status"]
    since = known["lastTransitionTime"] if known and unchanged else new.get("lastTransitionTime", timestamp(now))
    complete = {**new, "lastTransitionTime": since}
    if known is None:
        return [*conditions, complete]
    return [complete if one is known else one for one in conditions]


def without_condition(conditions: Sequence[Json], kind: str) -> list[Json]:
    """Leaves out the condition of a type."""
    return [one for one in conditions if one["type"] != kind]
