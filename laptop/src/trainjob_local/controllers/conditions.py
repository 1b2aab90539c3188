"""Conditions of statuses; pure functions over plain dicts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from trainjob_local.objects import Json, format_timestamp

__all__ = ["build_condition", "find_condition", "is_condition_true", "with_condition", "without_condition"]


def build_condition(kind: str, status: bool, reason: str, message: str) -> Json:
    """Build a condition; `with_condition` sets its time."""
    return {"type": kind, "status": str(status), "reason": reason, "message": message}


def find_condition(conditions: Sequence[Json], kind: str) -> Json | None:
    """Return the condition of a type, or None if it does not exist."""
    return next((one for one in conditions if one["type"] == kind), None)


def is_condition_true(conditions: Sequence[Json], kind: str) -> bool:
    """Return whether a condition exists and is true."""
    found = find_condition(conditions, kind)
    return found is not None and found["status"] == "True"


def with_condition(conditions: Sequence[Json], new: Json, now: datetime) -> list[Json]:
    """Return the conditions with a new one added or replaced by its type.

    The `lastTransitionTime` changes only if the status of the condition changes.

    Source: k8s.io/apimachinery 0.36 `pkg/api/meta/conditions.go` (SetStatusCondition).
    """
    known = find_condition(conditions, new["type"])
    unchanged = known is not None and known["status"] == new["status"]
    since = known["lastTransitionTime"] if known and unchanged else new.get("lastTransitionTime", format_timestamp(now))
    complete = {**new, "lastTransitionTime": since}
    if known is None:
        return [*conditions, complete]
    return [complete if one is known else one for one in conditions]


def without_condition(conditions: Sequence[Json], kind: str) -> list[Json]:
    """Return the conditions without those of a type."""
    return [one for one in conditions if one["type"] != kind]
