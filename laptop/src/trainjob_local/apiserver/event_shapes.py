"""Events have two shapes, core/v1 and events.k8s.io/v1, over one stored object. Pure.

Source: k8s.io/kubernetes 1.36 `pkg/apis/events/v1/conversion.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainjob_local.apiserver.resources import Resource
from trainjob_local.apiserver.store import Stored, encoded

__all__ = ["from_shape", "to_shape", "view_text"]

Json = dict[str, Any]

_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_BACK = {new: old for old, new in _NAMES.items()}


def to_shape(body: Mapping[str, Any]) -> Json:
    """Makes an events.k8s.io/v1 event of a stored one."""
    shaped = {_NAMES.get(key, key): value for key, value in body.items()}
    return {**shaped, "apiVersion": "events.k8s.io/v1"}


def from_shape(body: Mapping[str, Any]) -> Json:
    """Makes the stored event of an events.k8s.io/v1 one."""
    stored = {_BACK.get(key, key): value for key, value in body.items()}
    return {"involvedObject": {}, **stored, "apiVersion": "v1"}


def view_text(view: Resource, stored: Stored) -> bytes:
    """Gives the JSON of an object as a resource shows it."""
    return encoded(to_shape(stored.copy())) if view.served_from else stored.text
