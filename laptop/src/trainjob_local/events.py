"""Writer of Kubernetes events, in the two shapes that real components write.

Older components (kubelet, job controller, persistentvolume-controller) write core/v1 events with a count and first
and last timestamps. Newer ones (scheduler, JobSet, Trainer from 2.2) write events.k8s.io/v1 events. A core/v1 client
sees these with null timestamps and an `eventTime`.
Source: client-go 0.36 `tools/record/event.go` and `tools/events/event_recorder.go`.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime, timezone

from trainjob.errors import ClusterError
from trainjob_local.objects import Json, ObjectApi, format_timestamp, object_reference, utc_now

__all__ = ["EventRecorder", "build_core_event", "build_events_v1_event"]

_MAX_KNOWN_EVENTS = 4096  # maximum number of events whose count can still increase


def build_core_event(
    involved_object: Json, kind: str, reason: str, message: str, *, component: str, host: str, now: datetime
) -> Json:
    """Return an event with count and timestamps, as of client-go's `tools/record`."""
    source = {"component": component, "host": host} if host else {"component": component}
    return {
        "metadata": {},
        "involvedObject": involved_object,
        "type": kind,
        "reason": reason,
        "message": message,
        "source": source,
        "firstTimestamp": format_timestamp(now),
        "lastTimestamp": format_timestamp(now),
        "count": 1,
        "eventTime": None,
        "reportingComponent": component,
        "reportingInstance": host,
    }


def build_events_v1_event(
    involved_object: Json, kind: str, reason: str, message: str, *, component: str, action: str, now: datetime
) -> Json:
    """Return an event with `eventTime` and null timestamps, as of client-go's `tools/events`."""
    return {
        "metadata": {},
        "involvedObject": involved_object,
        "type": kind,
        "reason": reason,
        "message": message,
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "eventTime": now.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "action": action,
        "reportingComponent": component,
        "reportingInstance": f"{component}-0",
    }


class EventRecorder:
    """Recorder of the events of one component.

    If the same event occurs again, the recorder only increases its count, as client-go's correlator does. A failed
    write is never an error, because the namespace may be terminating.

    Args:
        api: API to write the events with.
        component: name of the reporting component, such as `kubelet`.
        host: name of the node, for the kubelet.
        action: action of the events, for components that write events.k8s.io/v1 events; empty for core/v1 events.
        clock: function that returns the current time.
    """

    def __init__(
        self,
        api: ObjectApi,
        component: str,
        *,
        host: str = "",
        action: str = "",
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._api, self._component, self._host, self._action, self._clock = api, component, host, action, clock
        self._known: OrderedDict[tuple[str, str, str], tuple[str, int]] = OrderedDict()
        self._lock = threading.Lock()

    def record(self, obj: Json, resource: str, kind: str, reason: str, message: str) -> None:
        """Write one event about an object.

        Args:
            obj: the object.
            resource: plural of its resource.
            kind: type of the event, `Normal` or `Warning`.
            reason: reason of the event in CamelCase.
            message: message of the event.
        """
        reference = object_reference(obj, resource)
        version = str(obj["metadata"].get("resourceVersion", ""))
        if version and not self._host:
            reference["resourceVersion"] = version
        # events.k8s.io/v1 events share a count only if they are about the same version of the object.
        name, count = self._next_count(
            (reference["uid"], reason, f"{version} {message}" if self._action else message), reference
        )
        namespace = reference.get("namespace", "default")
        try:
            if count > 1 and self._increase_count(name, namespace, count):
                return
            body = self._body(reference, kind, reason, message)
            self._api.create("events", {**body, "metadata": {"name": name, "namespace": namespace}}, namespace)
        except ClusterError:
            return

    def _next_count(self, key: tuple[str, str, str], involved_object: Json) -> tuple[str, int]:
        """Return the name of the event, and how often it has occurred, including this time."""
        with self._lock:
            name, count = self._known.pop(key, (f"{involved_object['name']}.{time.time_ns():x}", 0))
            self._known[key] = (name, count + 1)
            if len(self._known) > _MAX_KNOWN_EVENTS:
                self._known.popitem(last=False)
        return name, count + 1

    def _body(self, involved_object: Json, kind: str, reason: str, message: str) -> Json:
        now, component = self._clock(), self._component
        if self._action:
            return build_events_v1_event(
                involved_object, kind, reason, message, component=component, action=self._action, now=now
            )
        return build_core_event(involved_object, kind, reason, message, component=component, host=self._host, now=now)

    def _increase_count(self, name: str, namespace: str, count: int) -> bool:
        """Set the count of an existing event; return False if the event no longer exists."""
        now = self._clock()
        change: Json = {"count": count, "lastTimestamp": format_timestamp(now)}
        if self._action:
            change = {"series": {"count": count, "lastObservedTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}}
        try:
            self._api.patch("events", name, change, namespace)
        except ClusterError as error:
            if error.status == 404:
                return False
            raise
        return True
