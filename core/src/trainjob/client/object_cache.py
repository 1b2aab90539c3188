"""The objects that an informer knows, and the handlers of their events."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainjob.errors import ClusterError, ClusterUnreachable


@dataclass(frozen=True)
class ObjectEvent:
    """One event for a handler.

    An object was added, modified or deleted, or the informer failed.

    Attributes:
        object: the object as it is now, or its last known state if it was deleted; None with an error.
        deleted: whether the object was deleted.
        error: why no more events follow.
    """

    object: Mapping[str, Any] | None = None
    deleted: bool = False
    error: ClusterError | None = None


OnEvent = Callable[[ObjectEvent], None]
OnMissing = Callable[[], None]


class EventHandler:
    """Callbacks of one waiter for an informer's events; close it when the wait is over."""

    def __init__(
        self, key: str | None, on_event: OnEvent, on_missing: OnMissing, remove: Callable[[EventHandler], None]
    ) -> None:
        self.key, self.on_event, self.on_missing, self._remove = key, on_event, on_missing, remove
        self.removed = False

    def close(self) -> None:
        """Stop the delivery of events; a callback may call this, too."""
        self._remove(self)

    def __enter__(self) -> EventHandler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ObjectCache:
    """Known objects and event handlers of an informer.

    The cache does no I/O and starts no thread; users on several threads hold a lock. A handler that raises gets an
    event with an error and is removed; the other handlers still get their events.
    """

    def __init__(self) -> None:
        """Create an empty cache without handlers."""
        self._handlers: dict[str | None, dict[EventHandler, None]] = {}  # by key: an event concerns few of them
        self._objects: dict[str, dict[str, Mapping[str, Any]]] = {}  # by key, then by uid
        self.listed = False

    def __bool__(self) -> bool:
        """Return whether there is a handler."""
        return bool(self._handlers)

    def add_handler(self, handler: EventHandler) -> None:
        """Deliver the known objects to a handler, and from now on each event.

        Raises:
            Exception: an error of the handler; the handler is not added then.
        """
        objects = self._objects_of_key(handler.key)
        for obj in objects:
            handler.on_event(ObjectEvent(obj))
        if self.listed and not objects:
            handler.on_missing()
        self._handlers.setdefault(handler.key, {})[handler] = None

    def remove_handler(self, handler: EventHandler) -> None:
        """Stop all deliveries to a handler, even of an event that others are getting now."""
        handler.removed = True
        of_key = self._handlers.get(handler.key, {})
        of_key.pop(handler, None)
        if not of_key:
            self._handlers.pop(handler.key, None)

    def find(self, key: str, uid: str) -> Mapping[str, Any] | None:
        """Return the known object of a key and uid; None if it is not known."""
        return self._objects.get(key, {}).get(uid)

    def update(self, key: str, obj: Mapping[str, Any], *, deleted: bool = False) -> None:
        """Store or delete an object, and deliver an event if that is a change.

        Nothing is delivered if the cache has the same object already.
        """
        uid, by_uid = obj["metadata"]["uid"], self._objects.setdefault(key, {})
        changed = deleted or by_uid.get(uid) != obj
        if deleted:
            by_uid.pop(uid, None)
        else:
            by_uid[uid] = obj
        if not by_uid:
            del self._objects[key]
        for handler in [*self._handlers.get(key, ()), *self._handlers.get(None, ())] if changed else ():
            self._call_handler(handler, lambda each: each.on_event(ObjectEvent(obj, deleted=deleted)))

    def finish_list(self, listed_uids: set[str]) -> None:
        """Delete the objects that are missing in a complete list.

        After the first list, call `on_missing` of each handler that has no object.

        Args:
            listed_uids: uids of the list's objects.
        """
        all_objects = [(key, obj) for key, by_uid in self._objects.items() for obj in by_uid.values()]
        for key, obj in all_objects:  # a copy, because update() changes the dicts
            if obj["metadata"]["uid"] not in listed_uids:
                self.update(key, obj, deleted=True)
        if not self.listed:
            self.listed = True
            for handler in self._all_handlers():
                if not self._objects_of_key(handler.key):
                    self._call_handler(handler, lambda each: each.on_missing())

    def fail(self, error: ClusterError) -> None:
        """Deliver an error to all handlers, and remove them and all objects."""
        handlers, self._handlers = self._all_handlers(), {}
        self.clear()
        for handler in handlers:
            self._call_handler(handler, lambda each: each.on_event(ObjectEvent(error=error)))
            handler.removed = True

    def clear(self) -> None:
        """Remove all objects, because no watch keeps them up to date; the handlers stay."""
        self._objects, self.listed = {}, False

    def _objects_of_key(self, key: str | None) -> list[Mapping[str, Any]]:
        selected = self._objects.values() if key is None else (self._objects.get(key, {}),)
        return [obj for by_uid in selected for obj in by_uid.values()]

    def _all_handlers(self) -> list[EventHandler]:
        return [handler for of_key in self._handlers.values() for handler in of_key]

    def _call_handler(self, handler: EventHandler, callback: Callable[[EventHandler], None]) -> None:
        if handler.removed:  # removed by a handler that was called before it
            return
        try:
            callback(handler)
        except Exception as error:  # noqa: BLE001 - a bug of the handler; it gets the error
            self.remove_handler(handler)
            failure = ClusterUnreachable(f"an event handler failed: {type(error).__name__}: {error}")
            failure.__cause__ = error
            with contextlib.suppress(Exception):
                handler.on_event(ObjectEvent(error=failure))
