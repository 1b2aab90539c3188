"""Conversion between the two shapes of an Event: core/v1 and events.k8s.io/v1.

The store has the shape of core/v1. All functions are pure.
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
    """Convert a stored event to events.k8s.io/v1."""
    shaped = {_NAMES.get(key, key): value for key, value in body.items()}
    return {**shaped, "apiVersion": "events.k8s.io/v1"}


def from_shape(body: Mapping[str, Any]) -> Json:
    """Convert an event of events.k8s.io/v1 to the stored shape, core/v1."""
    stored = {_BACK.get(key, key): value for key, value in body.items()}
    return {"involvedObject": {}, **stored, "apiVersion": "v1"}


def view_text(view: Resource, stored: Stored) -> bytes:
    """Return the JSON of an object in the shape of the resource that serves it."""
    return encoded(to_shape(stored.copy())) if view.served_from else stored.text
