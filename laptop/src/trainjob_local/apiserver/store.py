"""Versions of objects: the current ones, a bounded history for watches, and those who want to hear of changes.

Every version of an object is immutable and kept as its JSON text, which is what lists and watches send; nobody gets
the parsed body to change. One counter numbers all writes, as etcd's revision does.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from trainjob_local.apiserver.refusals import expired, too_large_version
from trainjob_local.apiserver.resources import BY_PLURAL, Resource
from trainjob_local.apiserver.storage import Storage

__all__ = ["Change", "Store", "Stored", "Subscription", "encoded", "version_number"]

Json = dict[str, Any]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stored:
    """One version of one object.

    Attributes:
        body: the parsed object; never change it and never hand it out.
        version: its resourceVersion.
        text: its JSON, `kind` and `apiVersion` first.
    """

    body: Mapping[str, Any]
    version: int
    text: bytes

    def copy(self) -> Json:
        """Makes a copy that may be changed."""
        return cast("Json", json.loads(self.text))

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        metadata = self.body["metadata"]
        return metadata.get("namespace", ""), metadata["name"]


@dataclass(frozen=True)
class Change:
    """One write.

    Attributes:
        type: `ADDED`, `MODIFIED` or `DELETED`.
        resource: which resource, as in `RESOURCES`.
        version: the resourceVersion of the write.
        current: the object after it; for `DELETED` as it last was, with the version of the deletion.
        previous: the object before it; None for `ADDED`.
    """

    type: str
    resource: Resource
    version: int
    current: Stored
    previous: Stored | None = None

    @property
    def object(self) -> Json:
        """A copy of the object, the caller's own."""
        return self.current.copy()

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name of the object."""
        return self.current.key


class Subscription:
    """One who hears of changes; `close()` ends it."""

    def __init__(self, store: Store, callback: Callable[[Change], None], plurals: frozenset[str]) -> None:
        self._store, self.callback, self.plurals = store, callback, plurals

    def tell(self, change: Change) -> None:
        """Calls back if it wants this resource; the write has happened, so an error in the callback is logged only."""
        if self.plurals and change.resource.plural not in self.plurals:
            return
        try:
            self.callback(change)
        except Exception:  # noqa: BLE001 - logged
            _LOG.exception("a subscriber failed on %s %s %s", change.type, change.resource.plural, change.key)

    def close(self) -> None:
        """Stops the calls; one that is under way on another thread may still end after this."""
        self._store.unsubscribe(self)


@dataclass
class _Shelf:
    """What is kept of one resource: objects, history, and the version before the oldest change still known."""

    objects: dict[tuple[str, str], Stored] = field(default_factory=dict)
    history: deque[Change] = field(default_factory=deque)
    floor: int = 0


class Store:
    """All objects; every method is safe to call from any thread.

    Args:
        storage: where writes are kept; its content is loaded.
        history: how many changes of each resource are remembered for watches.

    Attributes:
        lock: held while reading or writing; hold it to do several things at once.
        version: resourceVersion of the last write.
    """

    def __init__(self, storage: Storage, *, history: int) -> None:
        self.lock = threading.RLock()
        self._storage, self._limit = storage, history
        self.version = storage.version()
        self._shelves = {plural: _Shelf(floor=self.version) for plural in BY_PLURAL}
        for plural, namespace, name, version, text in storage.load():
            self._shelves[plural].objects[namespace, name] = Stored(json.loads(text), version, text)
        self._subscriptions: tuple[Subscription, ...] = ()
        self._pending: deque[tuple[Change, tuple[Subscription, ...]]] = deque()
        self._calling = False

    def forget_history(self) -> None:
        """Makes every earlier resourceVersion too old to watch from, as after a start."""
        with self.lock:
            for shelf in self._shelves.values():
                shelf.history.clear()
                shelf.floor = self.version

    # -- reading --------------------------------------------------------------------------------------------------

    def get(self, resource: Resource, namespace: str, name: str) -> Stored | None:
        """Finds the current version of an object."""
        return self._shelves[resource.plural].objects.get((namespace, name))

    def all(self, resource: Resource, namespace: str = "") -> list[Stored]:
        """Lists current objects, of one namespace or of all, by namespace and name."""
        with self.lock:
            objects = self._shelves[resource.plural].objects
            return [objects[key] for key in sorted(objects) if not namespace or key[0] == namespace]

    def at(self, resource: Resource, version: int, namespace: str = "") -> list[Stored]:
        """Lists objects as they were at an earlier version.

        Raises:
            Refusal: 410, the history does not reach that far back; 504, the version does not exist yet.
        """
        with self.lock:
            shelf = self._shelves[resource.plural]
            if version > self.version:
                raise too_large_version(version, self.version)
            if version < shelf.floor:
                raise expired("The resourceVersion for the provided list is too old.")
            objects = dict(shelf.objects)
            for change in reversed(shelf.history):
                if change.version <= version:
                    break
                if change.previous is None:
                    objects.pop(change.key, None)
                else:
                    objects[change.key] = change.previous
            return [objects[key] for key in sorted(objects) if not namespace or key[0] == namespace]

    def since(self, resource: Resource, version: int) -> list[Change]:
        """Lists the changes of a resource after a version.

        Raises:
            Refusal: 410, the history does not reach that far back.
        """
        with self.lock:
            shelf = self._shelves[resource.plural]
            if version < shelf.floor:
                raise expired(f"too old resource version: {version} ({shelf.floor})")
            return [change for change in shelf.history if change.version > version]

    # -- writing --------------------------------------------------------------------------------------------------

    def put(self, resource: Resource, body: Mapping[str, Any]) -> Stored:
        """Writes an object under a new resourceVersion and tells the subscribers."""
        with self.lock:
            stored = self._numbered(resource, body)
            self._storage.put(resource.plural, *stored.key, stored.version, stored.text)
            shelf = self._shelves[resource.plural]
            previous = shelf.objects.get(stored.key)
            shelf.objects[stored.key] = stored
            self._record(Change("MODIFIED" if previous else "ADDED", resource, stored.version, stored, previous))
            return stored

    def remove(self, resource: Resource, body: Mapping[str, Any]) -> Stored:
        """Removes an object and tells the subscribers; `body` is how it is seen for the last time."""
        with self.lock:
            stored = self._numbered(resource, body)
            self._storage.remove(resource.plural, *stored.key, stored.version)
            previous = self._shelves[resource.plural].objects.pop(stored.key)
            self._record(Change("DELETED", resource, stored.version, stored, previous))
            return stored

    def _numbered(self, resource: Resource, body: Mapping[str, Any]) -> Stored:
        self.version += 1
        metadata = {**body["metadata"], "resourceVersion": str(self.version)}
        full = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        full |= {key: value for key, value in body.items() if key not in full}
        text = encoded(full)
        return Stored(json.loads(text), self.version, text)

    def _record(self, change: Change) -> None:
        shelf = self._shelves[change.resource.plural]
        shelf.history.append(change)
        if len(shelf.history) > self._limit:
            shelf.floor = shelf.history.popleft().version
        self._pending.append((change, self._subscriptions))
        self._tell()

    # -- telling --------------------------------------------------------------------------------------------------

    def subscribe(self, callback: Callable[[Change], None], resources: frozenset[str], *, replay: bool) -> Subscription:
        """Calls back for every change from now on, and first for what there is; see `Registry.subscribe`."""
        with self.lock:
            subscription = Subscription(self, callback, resources)
            self._subscriptions += (subscription,)
            if replay:
                for plural in BY_PLURAL:
                    if not resources or plural in resources:
                        self._replay(BY_PLURAL[plural], subscription)
                self._tell()
            return subscription

    def _replay(self, resource: Resource, subscription: Subscription) -> None:
        for stored in self.all(resource):
            self._pending.append((Change("ADDED", resource, stored.version, stored), (subscription,)))

    def unsubscribe(self, subscription: Subscription) -> None:
        """Ends a subscription."""
        with self.lock:
            self._subscriptions = tuple(other for other in self._subscriptions if other is not subscription)

    def _tell(self) -> None:
        """Delivers in the order of writes, also when a subscriber writes from within its callback."""
        if self._calling:
            return
        self._calling = True
        try:
            while self._pending:
                change, subscriptions = self._pending.popleft()
                for subscription in subscriptions:
                    subscription.tell(change)
        finally:
            self._calling = False


def encoded(value: Any) -> bytes:
    """Writes JSON as compact UTF-8; lone surrogates, which UTF-8 can't hold, become `?`."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def version_number(text: str) -> int:
    """Reads a resourceVersion, 0 for an empty one; a ValueError with Go's text when it is no number of 64 bits."""
    number = int(text) if text.isascii() and text.isdigit() else -1
    if text and not 0 <= number < 2**64:
        wrong = "invalid syntax" if number < 0 else "value out of range"
        raise ValueError(f"strconv.ParseUint: parsing {json.dumps(text)}: {wrong}")
    return max(number, 0)
