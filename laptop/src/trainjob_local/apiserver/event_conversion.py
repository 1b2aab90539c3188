"""Conversion between the two shapes of an Event: core/v1 and events.k8s.io/v1.

The store has the shape of core/v1. All functions are pure.
Source: k8s.io/kubernetes 1.36 `pkg/apis/events/v1/conversion.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainjob_local.apiserver.resources import Resource
from trainjob_local.apiserver.store import StoredObject, encode_json

__all__ = ["encode_as_served", "from_events_v1", "to_events_v1"]

Json = dict[str, Any]

_EVENTS_V1_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_CORE_V1_NAMES = {new: old for old, new in _EVENTS_V1_NAMES.items()}


def to_events_v1(body: Mapping[str, Any]) -> Json:
    """Convert a stored event to events.k8s.io/v1."""
    converted = {_EVENTS_V1_NAMES.get(key, key): value for key, value in body.items()}
    return {**converted, "apiVersion": "events.k8s.io/v1"}


def from_events_v1(body: Mapping[str, Any]) -> Json:
    """Convert an event of events.k8s.io/v1 to the stored shape, core/v1."""
    stored = {_CORE_V1_NAMES.get(key, key): value for key, value in body.items()}
    return {"involvedObject": {}, **stored, "apiVersion": "v1"}


def encode_as_served(resource: Resource, stored: StoredObject) -> bytes:
    """Return the JSON of an object in the shape of the resource that serves it."""
    return encode_json(to_events_v1(stored.copy())) if resource.stored_as else stored.text
