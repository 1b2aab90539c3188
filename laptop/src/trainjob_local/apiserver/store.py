"""Store of objects: current versions, a bounded history for watches, and subscriptions.

Every version of an object is immutable and stored as its JSON text. Lists and watches send this text. No caller may
change the parsed body. One counter numbers all writes, like etcd's revision.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from trainjob_local.apiserver.resources import BY_PLURAL, Resource
from trainjob_local.apiserver.status_errors import expired, too_large_version
from trainjob_local.apiserver.storage import Storage

__all__ = ["ObjectEvent", "Store", "StoredObject", "Subscription", "encode_json", "parse_resource_version"]

Json = dict[str, Any]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoredObject:
    """One version of one object.

    Attributes:
        body: the parsed object, shared by all readers: never change it and never return it to a caller of the registry.
        version: resourceVersion of the object.
        text: JSON of the object, which begins with `kind` and `apiVersion`.
    """

    body: Mapping[str, Any]
    version: int
    text: bytes

    def copy(self) -> Json:
        """Return a copy of the object that the caller may change."""
        return cast("Json", json.loads(self.text))

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        metadata = self.body["metadata"]
        return metadata.get("namespace", ""), metadata["name"]


@dataclass(frozen=True)
class ObjectEvent:
    """One write of one object.

    Attributes:
        type: `ADDED`, `MODIFIED` or `DELETED`.
        resource: resource of the object, an entry of `RESOURCES`.
        version: resourceVersion of the write.
        current: the object after the write; for `DELETED` its last state, with the version of the deletion.
        previous: the object before the write; None for `ADDED`.
    """

    type: str
    resource: Resource
    version: int
    current: StoredObject
    previous: StoredObject | None = None

    @property
    def object(self) -> Json:
        """Copy of the object that the caller may change."""
        return self.current.copy()

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name of the object."""
        return self.current.key


class Subscription:
    """Subscription of a callback to object events, until `close()`."""

    def __init__(self, store: Store, callback: Callable[[ObjectEvent], None], plurals: frozenset[str]) -> None:
        self._store, self.callback, self.plurals = store, callback, plurals

    def notify(self, event: ObjectEvent) -> None:
        """Call the callback for an event if the subscription includes its resource.

        An error of the callback is only logged, because the write has already happened.
        """
        if self.plurals and event.resource.plural not in self.plurals:
            return
        try:
            self.callback(event)
        except Exception:  # noqa: BLE001 - logged
            _LOG.exception("a callback failed for the event %s %s %s", event.type, event.resource.plural, event.key)

    def close(self) -> None:
        """Stop the calls; a call that runs on another thread may still end after this."""
        self._store.unsubscribe(self)


@dataclass
class _ResourceCache:
    """Objects and history of one resource.

    Attributes:
        objects: current objects by namespace and name.
        history: the latest events, oldest first.
        oldest_version: oldest version from which the history is complete.
    """

    objects: dict[tuple[str, str], StoredObject] = field(default_factory=dict)
    history: deque[ObjectEvent] = field(default_factory=deque)
    oldest_version: int = 0


class Store:
    """All objects of the API server; any thread may call every method.

    Args:
        storage: storage that keeps all writes, and from which the objects are loaded.
        history: number of changes of each resource that are kept for watches.

    Attributes:
        lock: lock of reads and writes; hold it to make several of them one atomic step.
        version: resourceVersion of the last write.
    """

    def __init__(self, storage: Storage, *, history: int) -> None:
        self.lock = threading.RLock()
        self._storage, self._history_limit = storage, history
        self.version = storage.get_version()
        self._caches = {plural: _ResourceCache(oldest_version=self.version) for plural in BY_PLURAL}
        for plural, namespace, name, version, text in storage.load_objects():
            self._caches[plural].objects[namespace, name] = StoredObject(json.loads(text), version, text)
        self._subscriptions: tuple[Subscription, ...] = ()
        self._pending: deque[tuple[ObjectEvent, tuple[Subscription, ...]]] = deque()
        self._notifying = False

    def clear_history(self) -> None:
        """Discard the history, as after a start; watches from earlier versions then expire."""
        with self.lock:
            for cache in self._caches.values():
                cache.history.clear()
                cache.oldest_version = self.version

    # -- reading --------------------------------------------------------------------------------------------------

    def get(self, resource: Resource, namespace: str, name: str) -> StoredObject | None:
        """Return the current version of an object, or None if it does not exist."""
        return self._caches[resource.plural].objects.get((namespace, name))

    def list_objects(self, resource: Resource, namespace: str = "") -> list[StoredObject]:
        """Return the current objects of one or all namespaces, sorted by namespace and name."""
        with self.lock:
            objects = self._caches[resource.plural].objects
            return [objects[key] for key in sorted(objects) if not namespace or key[0] == namespace]

    def list_objects_at(self, resource: Resource, version: int, namespace: str = "") -> list[StoredObject]:
        """Return the objects as they were at an earlier version, sorted by namespace and name.

        Raises:
            StatusError: 410 if the history does not reach back to this version; 504 if the version does not exist yet.
        """
        with self.lock:
            cache = self._caches[resource.plural]
            if version > self.version:
                raise too_large_version(version, self.version)
            if version < cache.oldest_version:
                raise expired("The resourceVersion for the provided list is too old.")
            objects = dict(cache.objects)
            for event in reversed(cache.history):
                if event.version <= version:
                    break
                if event.previous is None:
                    objects.pop(event.key, None)
                else:
                    objects[event.key] = event.previous
            return [objects[key] for key in sorted(objects) if not namespace or key[0] == namespace]

    def list_events_since(self, resource: Resource, version: int) -> list[ObjectEvent]:
        """Return the events of a resource after a version, oldest first.

        Raises:
            StatusError: 410 if the history does not reach back to this version.
        """
        with self.lock:
            cache = self._caches[resource.plural]
            if version < cache.oldest_version:
                raise expired(f"too old resource version: {version} ({cache.oldest_version})")
            return [event for event in cache.history if event.version > version]

    # -- writing --------------------------------------------------------------------------------------------------

    def put(self, resource: Resource, body: Mapping[str, Any]) -> StoredObject:
        """Write an object with a new resourceVersion and notify the subscribers."""
        with self.lock:
            stored = self._with_next_version(resource, body)
            self._storage.put(resource.plural, *stored.key, stored.version, stored.text)
            cache = self._caches[resource.plural]
            previous = cache.objects.get(stored.key)
            cache.objects[stored.key] = stored
            self._append_event(
                ObjectEvent("MODIFIED" if previous else "ADDED", resource, stored.version, stored, previous)
            )
            return stored

    def remove(self, resource: Resource, body: Mapping[str, Any]) -> StoredObject:
        """Remove an object and notify the subscribers.

        Args:
            resource: resource of the object.
            body: last state of the object, which subscribers and watches get.
        """
        with self.lock:
            stored = self._with_next_version(resource, body)
            self._storage.remove(resource.plural, *stored.key, stored.version)
            previous = self._caches[resource.plural].objects.pop(stored.key)
            self._append_event(ObjectEvent("DELETED", resource, stored.version, stored, previous))
            return stored

    def _with_next_version(self, resource: Resource, body: Mapping[str, Any]) -> StoredObject:
        self.version += 1
        metadata = {**body["metadata"], "resourceVersion": str(self.version)}
        full = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        full |= {key: value for key, value in body.items() if key not in full}
        text = encode_json(full)
        return StoredObject(json.loads(text), self.version, text)

    def _append_event(self, event: ObjectEvent) -> None:
        cache = self._caches[event.resource.plural]
        cache.history.append(event)
        if len(cache.history) > self._history_limit:
            cache.oldest_version = cache.history.popleft().version
        self._pending.append((event, self._subscriptions))
        self._notify()

    # -- subscriptions --------------------------------------------------------------------------------------------

    def subscribe(
        self, callback: Callable[[ObjectEvent], None], resources: frozenset[str], *, replay: bool
    ) -> Subscription:
        """Call the callback for every change from now on; see `Registry.subscribe`.

        If `replay` is true, the callback first gets an `ADDED` for every existing object.
        """
        with self.lock:
            subscription = Subscription(self, callback, resources)
            self._subscriptions += (subscription,)
            if replay:
                for plural in BY_PLURAL:
                    if not resources or plural in resources:
                        self._replay(BY_PLURAL[plural], subscription)
                self._notify()
            return subscription

    def _replay(self, resource: Resource, subscription: Subscription) -> None:
        for stored in self.list_objects(resource):
            self._pending.append((ObjectEvent("ADDED", resource, stored.version, stored), (subscription,)))

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription."""
        with self.lock:
            self._subscriptions = tuple(other for other in self._subscriptions if other is not subscription)

    def _notify(self) -> None:
        """Deliver pending events in the order of writes, even if a callback itself writes."""
        if self._notifying:
            return
        self._notifying = True
        try:
            while self._pending:
                event, subscriptions = self._pending.popleft()
                for subscription in subscriptions:
                    subscription.notify(event)
        finally:
            self._notifying = False


def encode_json(value: Any) -> bytes:
    """Encode a value as compact JSON in UTF-8.

    UTF-8 cannot encode lone surrogates, so each becomes `?`.
    """
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def parse_resource_version(text: str) -> int:
    """Return a resourceVersion as a number, 0 if it is empty.

    Raises:
        ValueError: the text is not an unsigned 64-bit number; the message is Go's.
    """
    number = int(text) if text.isascii() and text.isdigit() else -1
    if text and not 0 <= number < 2**64:
        wrong = "invalid syntax" if number < 0 else "value out of range"
        raise ValueError(f"strconv.ParseUint: parsing {json.dumps(text)}: {wrong}")
    return max(number, 0)
