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
from trainjob_local.objects import Json, ObjectApi, reference, timestamp, utc_now

__all__ = ["EventRecorder", "counted_event", "moment_event"]

_REMEMBERED = 4096  # maximum number of events whose count can still increase


def counted_event(
    about: Json, kind: str, reason: str, message: str, *, component: str, host: str, now: datetime
) -> Json:
    """Return an event with count and timestamps, as of client-go's `tools/record`."""
    source = {"component": component, "host": host} if host else {"component": component}
    return {
        "metadata": {},
        "involvedObject": about,
        "type": kind,
        "reason": reason,
        "message": message,
        "source": source,
        "firstTimestamp": timestamp(now),
        "lastTimestamp": timestamp(now),
        "count": 1,
        "eventTime": None,
        "reportingComponent": component,
        "reportingInstance": host,
    }


def moment_event(
    about: Json, kind: str, reason: str, message: str, *, component: str, action: str, now: datetime
) -> Json:
    """Return an event with `eventTime` and null timestamps, as of client-go's `tools/events`."""
    return {
        "metadata": {},
        "involvedObject": about,
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
        about = reference(obj, resource)
        version = str(obj["metadata"].get("resourceVersion", ""))
        if version and not self._host:
            about["resourceVersion"] = version
        # events.k8s.io/v1 events share a count only if they are about the same version of the object.
        name, count = self._count((about["uid"], reason, f"{version} {message}" if self._action else message), about)
        namespace = about.get("namespace", "default")
        try:
            if count > 1 and self._repeat(name, namespace, count):
                return
            body = self._body(about, kind, reason, message)
            self._api.create("events", {**body, "metadata": {"name": name, "namespace": namespace}}, namespace)
        except ClusterError:
            return

    def _count(self, key: tuple[str, str, str], about: Json) -> tuple[str, int]:
        """Return the name of the event, and how often it has occurred, including this time."""
        with self._lock:
            name, count = self._known.pop(key, (f"{about['name']}.{time.time_ns():x}", 0))
            self._known[key] = (name, count + 1)
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return name, count + 1

    def _body(self, about: Json, kind: str, reason: str, message: str) -> Json:
        now, component = self._clock(), self._component
        if self._action:
            return moment_event(about, kind, reason, message, component=component, action=self._action, now=now)
        return counted_event(about, kind, reason, message, component=component, host=self._host, now=now)

    def _repeat(self, name: str, namespace: str, count: int) -> bool:
        """Set the count of an existing event; return False if the event no longer exists."""
        now = self._clock()
        change: Json = {"count": count, "lastTimestamp": timestamp(now)}
        if self._action:
            change = {"series": {"count": count, "lastObservedTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}}
        try:
            self._api.patch("events", name, change, namespace)
        except ClusterError as error:
            if error.status == 404:
                return False
            raise
        return True
