"""Garbage collection of dependents without owner, of deleted namespaces and of old events.

All changes put keys of objects into a queue, which one thread processes. The rules are those of k8s.io/kubernetes
1.36 `pkg/controller/garbagecollector` (attemptToDeleteItem, processDeletingDependentsItem) and
`pkg/controller/namespace`.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from trainjob_local.apiserver.deletion import FOREGROUND, ORPHAN, DeleteOptions, is_removable
from trainjob_local.apiserver.object_registry import ObjectRegistry
from trainjob_local.apiserver.resources import BY_PLURAL, RESOURCES, Resource
from trainjob_local.apiserver.status_errors import StatusError
from trainjob_local.apiserver.store import ObjectEvent, StoredObject

__all__ = ["EventExpiry", "GarbageCollector"]

Json = dict[str, Any]
_Key = tuple[str, str, str]

_LOG = logging.getLogger(__name__)
_EVENT_TTL = timedelta(hours=1)
_REMOVAL_DELAY = 0.03
"""Seconds from the removal of an owner's last dependent to that of the owner, as in kube-controller-manager."""

_RESOURCES_BY_KIND = {
    (resource.api_version, resource.kind): resource for resource in RESOURCES if not resource.stored_as
}


class GarbageCollector:
    """Garbage collector that runs on its own thread from its creation until [stop][].

    Args:
        registry: registry of the objects.
    """

    def __init__(self, registry: ObjectRegistry) -> None:
        self._registry = registry
        self._queue: queue.Queue[_Key | None] = queue.Queue()
        self._dependents: defaultdict[str, set[_Key]] = defaultdict(set)
        self._keys_by_uid: dict[str, _Key] = {}
        self._denied: set[_Key] = set()
        self._scheduled_removals: deque[tuple[float, _Key, str]] = deque()
        self._subscription = registry.subscribe(self._on_event)
        self._thread = threading.Thread(target=self._run, name="collector", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; wait up to 5 seconds until it ends."""
        self._subscription.close()
        self._queue.put(None)
        self._thread.join(timeout=5)

    # -- index and queue: under the registry's lock -----------------------------------------------------------------

    def _on_event(self, event: ObjectEvent) -> None:
        body, key = event.current.body, (event.resource.plural, *event.key)
        uid = body["metadata"]["uid"]
        self._index_owners(event.previous, key, add=False)
        if event.type == "DELETED":
            self._keys_by_uid.pop(uid, None)
            self._enqueue(self._dependents.pop(uid, ()))
            self._enqueue(self._keys_by_uid[owner] for owner in _owner_uids(body) if owner in self._keys_by_uid)
            if body["metadata"].get("namespace"):
                self._queue.put(("namespaces", "", body["metadata"]["namespace"]))
            return
        self._keys_by_uid[uid] = key
        self._index_owners(event.current, key, add=True)
        if event.type == "ADDED":  # an admission rule may have refused because this object was missing
            self._enqueue(self._denied)
            self._denied.clear()
        if _owner_uids(body) or "deletionTimestamp" in body["metadata"]:
            self._queue.put(key)

    def _index_owners(self, stored: StoredObject | None, key: _Key, *, add: bool) -> None:
        for owner in _owner_uids(stored.body) if stored else ():
            if add:
                self._dependents[owner].add(key)
            else:
                self._dependents[owner].discard(key)

    def _enqueue(self, keys: Iterator[_Key] | Sequence[_Key] | set[_Key]) -> None:
        for key in keys:
            self._queue.put(key)

    # -- working through the queue ----------------------------------------------------------------------------------

    def _run(self) -> None:
        while (work := self._next_work()) is not None:
            step, key = work
            try:
                with self._registry.lock:
                    self._run_step(step, key)
            except Exception:  # noqa: BLE001 - logged
                _LOG.exception("garbage collection of %s failed", "/".join(key))

    def _next_work(self) -> tuple[Callable[[_Key], None], _Key] | None:
        """Wait for the next step.

        Returns:
            The function to call and the key of its object: an object of the queue, or an owner without blocking
            dependents whose delay is over. None if the collector has to stop.
        """
        wait = self._scheduled_removals[0][0] - time.monotonic() if self._scheduled_removals else None
        if wait is None or wait > 0:
            with contextlib.suppress(queue.Empty):
                key = self._queue.get(timeout=wait)
                return (self._process, key) if key is not None else None
        _, unblocked, uid = self._scheduled_removals.popleft()
        return partial(self._remove_foreground_finalizer, uid), unblocked

    def _run_step(self, step: Callable[[_Key], None], key: _Key) -> None:
        try:
            step(key)
        except StatusError as error:  # an admission rule forbids it; the next created object triggers another attempt
            self._denied.add(key)
            _LOG.warning("the garbage collector cannot delete or change %s: %s", "/".join(key), error)

    def _process(self, key: _Key) -> None:
        resource = BY_PLURAL[key[0]]
        stored = self._registry.store.get(resource, key[1], key[2])
        if stored is None:
            return
        metadata = stored.body["metadata"]
        if "deletionTimestamp" not in metadata:
            self._attempt_to_delete(resource, stored)
        elif ORPHAN in (metadata.get("finalizers") or ()):
            self._orphan_dependents(resource, stored)
        elif FOREGROUND in (metadata.get("finalizers") or ()):
            self._continue_foreground_deletion(resource, stored)
        elif resource.plural == "namespaces":
            self._delete_namespace_content(stored)

    def _attempt_to_delete(self, resource: Resource, stored: StoredObject) -> None:
        """Delete an object whose owners are all absent or waiting (see `_owner_state`).

        If an owner is solid, the object is kept, and only its references to the other owners are removed. If an owner
        waits and the object itself has dependents, the object is deleted in the foreground, so after its dependents.
        """
        owners = stored.body["metadata"].get("ownerReferences") or []
        if not owners:
            return
        states = [self._owner_state(resource, stored, owner) for owner in owners]
        if "solid" in states:
            kept = [owner for owner, state in zip(owners, states, strict=True) if state == "solid"]
            if len(kept) < len(owners):
                self._update_metadata(resource, stored, {"ownerReferences": kept})
            return
        waited_for = "waiting" in states and self._dependents_of(stored)
        self._delete(resource, stored, "Foreground" if waited_for else "Background")

    def _owner_state(self, resource: Resource, stored: StoredObject, owner: Mapping[str, Any]) -> str:
        """Return the state of an owner: `solid`, `absent`, or `waiting`.

        A waiting owner is in foreground deletion and this dependent blocks its removal.
        """
        kind = _RESOURCES_BY_KIND.get((str(owner.get("apiVersion")), str(owner.get("kind"))))
        if kind is None:
            return "solid"  # the owner's resource is not served here, so it may exist
        namespace = stored.key[0] if kind.namespaced else ""
        if kind.namespaced and not resource.namespaced:
            return "solid"
        found = self._registry.store.get(kind, namespace, str(owner.get("name")))
        if found is None or found.body["metadata"]["uid"] != owner.get("uid"):
            return "absent"
        waits = FOREGROUND in (found.body["metadata"].get("finalizers") or ()) and owner.get("blockOwnerDeletion")
        return "waiting" if waits and "deletionTimestamp" in found.body["metadata"] else "solid"

    def _continue_foreground_deletion(self, resource: Resource, stored: StoredObject) -> None:
        """Continue the foreground deletion of an owner.

        If no dependent blocks the deletion, the owner's removal is scheduled. Otherwise its dependents are queued.
        """
        uid = stored.body["metadata"]["uid"]
        dependents = self._dependents_of(stored)
        if not any(_blocks(dependent.body, uid) for _, dependent in dependents):
            key = (resource.plural, *stored.key)
            if (key, uid) not in ((known, of) for _, known, of in self._scheduled_removals):
                self._scheduled_removals.append((time.monotonic() + _REMOVAL_DELAY, key, uid))
        else:
            self._enqueue([(kind.plural, *dependent.key) for kind, dependent in dependents])

    def _remove_foreground_finalizer(self, uid: str, key: _Key) -> None:
        """Remove the foreground finalizer of an owner, even if new dependents exist by now.

        kube-controller-manager does the same, because its cache lags behind. A controller that ignores the deletion of
        its object can create a dependent in this time. That dependent is then collected, because its owner is absent.
        """
        resource = BY_PLURAL[key[0]]
        stored = self._registry.store.get(resource, key[1], key[2])
        if stored is not None and stored.body["metadata"]["uid"] == uid:
            self._remove_finalizer(resource, stored, FOREGROUND)

    def _orphan_dependents(self, resource: Resource, stored: StoredObject) -> None:
        uid = stored.body["metadata"]["uid"]
        for kind, dependent in self._dependents_of(stored):
            owners = dependent.body["metadata"]["ownerReferences"]
            self._update_metadata(
                kind, dependent, {"ownerReferences": [owner for owner in owners if owner.get("uid") != uid]}
            )
        self._remove_finalizer(resource, stored, ORPHAN)

    def _delete_namespace_content(self, namespace: StoredObject) -> None:
        """Delete the content of a namespace, and the namespace itself if no content is left."""
        name, left = namespace.key[1], False
        for resource in BY_PLURAL.values():
            for stored in self._registry.store.list_objects(resource, name) if resource.namespaced else ():
                if "deletionTimestamp" not in stored.body["metadata"]:
                    self._delete(resource, stored, "Background")
                left = left or self._registry.store.get(resource, *stored.key) is not None
        if not left:
            body = namespace.copy()
            body["spec"] = {**(body.get("spec") or {}), "finalizers": []}
            self._write(BY_PLURAL["namespaces"], body)

    # -- shared -----------------------------------------------------------------------------------------------------

    def _dependents_of(self, stored: StoredObject) -> list[tuple[Resource, StoredObject]]:
        found = []
        for plural, namespace, name in sorted(self._dependents.get(stored.body["metadata"]["uid"], ())):
            dependent = self._registry.store.get(BY_PLURAL[plural], namespace, name)
            if dependent is not None:
                found.append((BY_PLURAL[plural], dependent))
        return found

    def _delete(self, resource: Resource, stored: StoredObject, propagation: str) -> None:
        options = DeleteOptions(uid=stored.body["metadata"]["uid"], propagation=propagation)
        self._registry.delete_with_options(resource, stored.key[1], stored.key[0], options)

    def _remove_finalizer(self, resource: Resource, stored: StoredObject, finalizer: str) -> None:
        """Remove a finalizer from an object; as with any change, admission rules may refuse it."""
        finalizers = [name for name in stored.body["metadata"].get("finalizers") or () if name != finalizer]
        change = {"metadata": {"finalizers": finalizers or None}}
        self._registry.patch(resource.plural, stored.key[1], change, stored.key[0])

    def _update_metadata(self, resource: Resource, stored: StoredObject, metadata: Mapping[str, Any]) -> None:
        """Change metadata of an object without admission rules; an empty list removes its field."""
        body = stored.copy()
        body["metadata"] |= metadata
        body["metadata"] = {key: value for key, value in body["metadata"].items() if value != [] or key not in metadata}
        self._write(resource, body)

    def _write(self, resource: Resource, body: Json) -> None:
        store = self._registry.store
        if is_removable(body):
            store.remove(resource, body)
        else:
            store.put(resource, body)


def _owner_uids(body: Mapping[str, Any]) -> list[str]:
    return [str(owner.get("uid")) for owner in body["metadata"].get("ownerReferences") or ()]


def _blocks(body: Mapping[str, Any], uid: str) -> bool:
    owners = body["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == uid and owner.get("blockOwnerDeletion") for owner in owners)


class EventExpiry:
    """Deletion of events one hour after their last write.

    kube-apiserver 1.36 deletes them after the same time (`--event-ttl`).
    Every write of an event triggers the deletion of the old ones. If the server restarts with its state, the hour
    begins again for all events.

    Args:
        registry: registry of the events.
        clock: function that returns the current time.
    """

    def __init__(self, registry: ObjectRegistry, clock: Callable[[], datetime]) -> None:
        self._registry, self._clock = registry, clock
        self._write_times: OrderedDict[tuple[str, str], datetime] = OrderedDict()  # oldest first
        registry.subscribe(self._on_event, resources=("events",))

    def _on_event(self, event: ObjectEvent) -> None:
        now = self._clock()
        self._write_times.pop(event.key, None)
        if event.type == "DELETED":
            return
        self._write_times[event.key] = now
        while now - next(iter(self._write_times.values())) >= _EVENT_TTL:
            (namespace, name), _ = self._write_times.popitem(last=False)
            with contextlib.suppress(StatusError):  # the event was deleted with its namespace
                self._registry.delete("events", name, namespace)
