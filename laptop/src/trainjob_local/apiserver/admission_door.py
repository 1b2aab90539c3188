"""The door for rules of webhooks and admission plugins: they see, change or refuse objects on their way in."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol

__all__ = ["Admission", "Operation", "Reader", "Stage"]


class Operation(str, Enum):
    """What is being done to the object."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


class Stage(str, Enum):
    """When a rule is asked, as in kube-apiserver: mutating rules, then schema checks (422), then validating rules."""

    MUTATING = "mutating"
    VALIDATING = "validating"


class Reader(Protocol):
    """What a rule may look up; both methods raise `Refusal`."""

    def get(self, resource: str, name: str, namespace: str = "") -> dict[str, Any]:
        """Reads one object as a copy; 404 when there is none."""

    def list(self, resource: str, namespace: str = "", *, labels: str = "", fields: str = "") -> list[dict[str, Any]]:
        """Reads objects as copies."""


Admission = Callable[[Operation, dict[str, Any], "dict[str, Any] | None", Reader], dict[str, Any]]
"""A rule: gets the operation, the new object (its own copy), the old one (None on create) and a reader; returns the
object to go on with, or raises `Refusal`. On DELETE the new object is the one that is to go, and the returned one is
ignored. It is asked for writes of the object itself, never for its status."""
