"""Writes Kubernetes events, in the two shapes that real components write.

Older components (kubelet, job controller, persistentvolume-controller) write core/v1 events with counts and first and
last timestamps;
newer ones (scheduler, JobSet, Trainer from 2.2) write events.k8s.io/v1 events, which core/v1 readers see with
null timestamps and an `eventTime`. Source: client-go 0.36 `tools/record/event.go` and `tools/events/event_recorder.go`.
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

_REMEMBERED = 4096  # events whose count may still be raised


def counted_event(
    about: Json, kind: str, reason: str, message: str, *, component: str, host: str, now: datetime
) -> Json:
    """Builds an event with count and timestamps (client-go `tools/record`)."""
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
    """Builds an event of the new kind (client-go `tools/events`): no timestamps but an `eventTime`."""
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
    """Writes the events of one component; the same event again only raises its count, as client-go's correlator does.

    A lost event is never an error: the namespace may be going away.

    Args:
        api: the API server.
        component: who reports, such as `kubelet`.
        host: name of the node, for the kubelet.
        action: set for components that write events of the new kind.
        clock: gives the time.
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
        """Writes one event about an object of a resource; kind is `Normal` or `Warning`."""
        about = reference(obj, resource)
        version = str(obj["metadata"].get("resourceVersion", ""))
        if version and not self._host:
            about["resourceVersion"] = version
        # Events of the new kind are counted together for one version of the object only.
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
        """Name of the event, and how often it has happened."""
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
        """Raises the count of an event; False when that is gone already."""
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
