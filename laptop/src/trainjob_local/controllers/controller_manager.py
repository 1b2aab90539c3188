"""Controller manager: an event-driven loop that runs all controllers over the registry.

Every change of an object adds the keys that it concerns to a queue. One thread takes the keys from the queue, calls the
controller's `reconcile` and applies its decision. One thread is enough because a reconciliation takes about a
millisecond, and a single thread cannot conflict with itself.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from trainjob.errors import ClusterError
from trainjob_local.apiserver import ObjectEvent, Registry, Subscription
from trainjob_local.controllers.writes import Bind, Create, Decision, Delete, EventWrite, Patch, Write
from trainjob_local.events import EventRecorder
from trainjob_local.objects import Json, ObjectApi, utc_now

__all__ = ["Controller", "ControllerManager", "Key"]

_LOG = logging.getLogger(__name__)
_FIRST_RETRY, _LONGEST_RETRY = 0.05, 5.0  # seconds
_MAX_ERROR_LENGTH = 950  # characters in an event; the Trainer has the same limit

Key = tuple[str, str]
"""Namespace and name of the object that a controller reconciles."""


@dataclass(frozen=True)
class Controller:
    """A controller: the resources that it watches, and its reconcile function.

    Attributes:
        name: name for logs.
        watches: per resource, a function that returns the keys that a changed object concerns.
        reconcile: function that reads the object of a key and returns the decision.
    """

    name: str
    watches: Mapping[str, Callable[[Json], Iterable[Key]]]
    reconcile: Callable[[Key, datetime], Decision]


class _WriteFailed(Exception):
    """Error for a write that the registry rejected.

    The controller manager skips the remaining writes of the decision and retries later.
    """


class ControllerManager:
    """Controller manager that runs controllers on one thread, from `start()` to `stop()`.

    Args:
        registry: registry of the objects.
        api: API over the same objects, for events.
        controllers: the controllers to run.
        clock: function that returns the current time.
    """

    def __init__(
        self,
        registry: Registry,
        api: ObjectApi,
        controllers: Sequence[Controller],
        *,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._registry, self._api, self._controllers, self._clock = registry, api, controllers, clock
        self._condition = threading.Condition()
        self._queue: list[tuple[float, int, int, Key]] = []  # due, order of arrival, controller, key
        self._due_times: dict[tuple[int, Key], float] = {}
        self._order = itertools.count()
        self._failures: dict[tuple[int, Key], int] = {}
        self._recorders: dict[tuple[str, str], EventRecorder] = {}
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="controllers", daemon=True)
        self._subscription: Subscription | None = None

    def start(self) -> None:
        """Reconcile all existing objects, then every changed one."""
        resources = {resource for controller in self._controllers for resource in controller.watches}
        self._subscription = self._registry.subscribe(self._on_event, resources=resources)
        self._thread.start()

    def stop(self) -> None:
        """Stop the loop after the current reconciliation."""
        if self._subscription is not None:
            self._subscription.close()
        with self._condition:
            self._stopped = True
            self._condition.notify_all()
        self._thread.join()

    # -- the queue ------------------------------------------------------------------------------------------------

    def _on_event(self, event: ObjectEvent) -> None:
        obj = event.object
        for number, controller in enumerate(self._controllers):
            keys = controller.watches.get(event.resource.plural)
            for key in keys(obj) if keys else ():
                self._enqueue(number, key, 0.0)

    def _enqueue(self, number: int, key: Key, delay: float) -> None:
        due = time.monotonic() + delay
        with self._condition:
            if due >= self._due_times.get((number, key), float("inf")):
                return  # it is reconciled before that anyway
            self._due_times[number, key] = due
            heapq.heappush(self._queue, (due, next(self._order), number, key))
            self._condition.notify_all()

    def _dequeue(self) -> tuple[int, Key] | None:
        with self._condition:
            while not self._stopped:
                wait = self._queue[0][0] - time.monotonic() if self._queue else None
                if wait is not None and wait <= 0:
                    due, _, number, key = heapq.heappop(self._queue)
                    if self._due_times.get((number, key)) == due:  # else it was reconciled earlier
                        del self._due_times[number, key]
                        return number, key
                    continue
                self._condition.wait(wait)
            return None

    # -- reconciling ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (taken := self._dequeue()) is not None:
            try:
                self._reconcile(*taken)
            except Exception:  # noqa: BLE001 - one object must not stop the cluster
                if not self._stopped:
                    _LOG.exception("controller %s failed to reconcile %s", self._controllers[taken[0]].name, taken[1])
                    self._retry(*taken)

    def _reconcile(self, number: int, key: Key) -> None:
        decision = self._controllers[number].reconcile(key, self._clock())
        try:
            for write in decision.writes:
                self._apply_write(write)
        except _WriteFailed as error:
            _LOG.info("controller %s retries %s later: %s", self._controllers[number].name, key, error)
            self._retry(number, key)
            return
        self._failures.pop((number, key), None)
        if decision.requeue_after is not None:
            self._enqueue(number, key, max(0.0, decision.requeue_after))

    def _retry(self, number: int, key: Key) -> None:
        failures = self._failures.get((number, key), 0)
        self._failures[number, key] = failures + 1
        self._enqueue(number, key, min(_FIRST_RETRY * 2.0**failures, _LONGEST_RETRY))

    # -- writing --------------------------------------------------------------------------------------------------

    def _apply_write(self, write: Write) -> None:
        if isinstance(write, EventWrite):
            return self._record_event(write)
        try:
            name = self._write(write)
        except ClusterError as error:
            if isinstance(write, (Delete, Patch)) and error.status == 404:
                return None  # a deleted object needs no write
            failure_event = write.failure_event if isinstance(write, (Create, Patch)) else None
            if failure_event is not None and error.status != 409:
                named = write.body["metadata"].get("name", "") if isinstance(write, Create) else ""
                too_long = len(error.message) > _MAX_ERROR_LENGTH
                text = f"{error.message[:_MAX_ERROR_LENGTH]} ..." if too_long else error.message
                self._record_event(failure_event, name=named, error=text)
            raise _WriteFailed(error.message) from error
        if isinstance(write, (Create, Delete)) and write.success_event is not None and name:
            self._record_event(write.success_event, name=name)
        return None

    def _write(self, write: Create | Patch | Delete | Bind) -> str:
        """Apply a write and return the name of the object; empty if no write was needed."""
        if isinstance(write, Create):
            return self._create(write)
        meta = write.pod["metadata"] if isinstance(write, Bind) else write.obj["metadata"]
        name, namespace = meta["name"], meta.get("namespace", "")
        if isinstance(write, Bind):
            self._registry.bind(name, write.node, namespace)
        elif isinstance(write, Patch):
            self._registry.patch(write.resource, name, write.change, namespace, subresource=write.subresource)
        else:
            propagation, uid = write.propagation, meta.get("uid", "")
            self._registry.delete(write.resource, name, namespace, uid=uid, grace=write.grace, propagation=propagation)
        return str(name)

    def _create(self, write: Create) -> str:
        meta = write.body["metadata"]
        namespace = meta.get("namespace", "")
        if write.may_exist and self._exists(write.resource, meta["name"], namespace):
            return ""
        created = self._registry.create(write.resource, write.body, namespace)
        return str(created["metadata"]["name"])

    def _exists(self, resource: str, name: str, namespace: str) -> bool:
        try:
            self._registry.get(resource, name, namespace)
        except ClusterError:
            return False
        return True

    def _record_event(self, event: EventWrite, **values: str) -> None:
        key = (event.component, event.action)
        recorder = self._recorders.get(key)
        if recorder is None:
            recorder = self._recorders[key] = EventRecorder(
                self._api, event.component, action=event.action, clock=self._clock
            )
        message = event.message
        for name, value in values.items():
            message = message.replace("{" + name + "}", value)
        recorder.record(event.obj, event.resource, event.kind, event.reason, message)
