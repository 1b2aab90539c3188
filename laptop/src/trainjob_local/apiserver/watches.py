"""Watches: a broadcaster passes all object events to the open streams, on the event loop.

Semantics: k8s.io/apiserver 0.36 `pkg/storage/cacher` (cache_watcher.go: conversion of a change to an event of a watch
with selectors; 410 as an ERROR event).
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field

from trainjob_local.apiserver.event_conversion import encode_as_served
from trainjob_local.apiserver.faults import Faults
from trainjob_local.apiserver.listing import build_filter
from trainjob_local.apiserver.registry import Registry
from trainjob_local.apiserver.request_parsing import ListOptions
from trainjob_local.apiserver.resources import Resource
from trainjob_local.apiserver.status_errors import StatusError, too_large_version
from trainjob_local.apiserver.store import ObjectEvent, StoredObject, encode_json
from trainjob_local.apiserver.tables import TableFormat

__all__ = ["StreamDropped", "Watch", "WatchBroadcaster"]

_BOOKMARK_SECONDS, _LAST_BOOKMARK_SECONDS = 60.0, 2.0
_SHORTEST_SECONDS = 1800
_MAX_PENDING_LINES = 10_000
_Encode = Callable[["Watch", str, StoredObject], bytes]


class StreamDropped(Exception):
    """A stream that ends without a proper end, like a lost connection."""


@dataclass(eq=False)
class Watch:
    """One open stream.

    Attributes:
        resource: the resource in the API group that the client watches.
        namespace: namespace of the watch; empty for all.
        is_selected: function that tests whether the selectors select an object.
        table: format of the table in which each object is sent; None sends the objects themselves.
        start_version: version up to which `pending` contained all changes when the watch began.
        sent_version: newest version that the client has received: of the last event, or of the start of the watch.
        pending: lines to send.
        wake: event that is set when lines are pending or the stream has to end.
        must_end: whether the stream has to end properly.
        must_drop: whether the connection has to break off.
    """

    resource: Resource
    namespace: str
    is_selected: Callable[[StoredObject], bool]
    table: TableFormat | None = None
    start_version: int = 0
    sent_version: int = 0
    pending: list[bytes] = field(default_factory=list)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    must_end: bool = False
    must_drop: bool = False

    def add_event(self, event: ObjectEvent, encode: _Encode) -> None:
        """Add the line for an object event to the pending lines, if the watch selects it.

        An object that the selectors begin to select becomes ADDED. An object that they stop selecting becomes
        DELETED. If too many lines are pending, the stream is marked as dropped.

        Args:
            event: the event of an object.
            encode: function that encodes an event as a line.
        """
        if event.version <= self.start_version or (self.namespace and event.key[0] != self.namespace):
            return
        now = event.type != "DELETED" and self.is_selected(event.current)
        before = event.previous is not None and self.is_selected(event.previous)
        if not now and not before:
            return
        if now:
            self.pending.append(encode(self, "MODIFIED" if before else "ADDED", event.current))
        elif event.previous is not None:
            shown = event.current if event.type == "DELETED" else _with_version(event.previous, event.version)
            self.pending.append(encode(self, "DELETED", shown))
        self.sent_version = event.version
        self.must_drop = self.must_drop or len(self.pending) > _MAX_PENDING_LINES  # the client reads too slowly
        self.wake.set()


class WatchBroadcaster:
    """All open watches of a server.

    Args:
        registry: registry whose changes are sent.
        faults: faults of the server, which can expire or drop watches.
        loop: event loop of the server.
    """

    def __init__(self, registry: Registry, faults: Faults, loop: asyncio.AbstractEventLoop) -> None:
        self._registry, self._faults, self._loop = registry, faults, loop
        self._events: deque[ObjectEvent] = deque()
        self._scheduled = False
        self._watches: dict[str, set[Watch]] = {}
        self._delivered_version = registry.store.version
        self._subscription = registry.subscribe(self._on_event, replay=False)
        faults.add_drop_callback(lambda: self._call_in_loop(self._drop_all))

    def close(self) -> None:
        """End all streams properly; any thread may call this."""
        self._subscription.close()
        self._call_in_loop(self._end_all)

    def _call_in_loop(self, function: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)

    def _on_event(self, event: ObjectEvent) -> None:
        """Queue an object event for the event loop.

        The thread that writes calls this while it holds the registry's lock.
        """
        self._events.append(event)
        if not self._scheduled:
            self._scheduled = True
            self._call_in_loop(self._deliver_events)

    def _deliver_events(self) -> None:
        self._scheduled = False
        while self._events:
            event = self._events.popleft()
            encode = _build_cached_encoder()
            for watch in self._watches.get(event.resource.plural, ()):
                watch.add_event(event, encode)
            self._delivered_version = max(self._delivered_version, event.version)

    def _list_watches(self) -> list[Watch]:
        return [watch for watches in self._watches.values() for watch in watches]

    def _drop_all(self) -> None:
        for watch in self._list_watches():
            watch.must_drop = True
            watch.wake.set()

    def _end_all(self) -> None:
        for watch in self._list_watches():
            watch.must_end = True
            watch.wake.set()

    def open(
        self, resource: Resource, namespace: str, options: ListOptions, table: TableFormat | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Open a stream and return the generator of its lines.

        If the resourceVersion is too old or too new, the stream consists of one ERROR event.

        Raises:
            StatusError: 400, 422 or 500 if the options are not valid.
        """
        is_selected = build_filter(resource, options)
        version = options.parse_version(watch=True)
        watch = Watch(resource, namespace, is_selected, table)
        try:
            self._register(watch, version, options)
        except StatusError as error:
            if error.code not in (410, 504):
                raise
            watch.pending = [_encode_line("ERROR", encode_json(error.to_status()))]
            watch.must_end = True
        return self._stream_lines(watch, options)

    def _register(self, watch: Watch, version: int, options: ListOptions) -> None:
        """Add the initial events to a watch and register it.

        Both happen under the registry's lock, so that no change is lost between them.
        """
        if version:
            self._faults.check_watch()
        from_state = options.send_initial_events if options.send_initial_events is not None else version == 0
        encode = _build_cached_encoder()
        with self._registry.lock:
            store = self._registry.store
            if options.send_initial_events and version > store.version:
                raise too_large_version(version, store.version)
            watch.sent_version = store.version if from_state else version
            if from_state:
                found = [
                    stored
                    for stored in store.list_objects(watch.resource, watch.namespace)
                    if watch.is_selected(stored)
                ]
                watch.pending = [encode(watch, "ADDED", stored) for stored in found]
                if options.allow_bookmarks:
                    watch.pending.append(_encode_bookmark(watch.resource, store.version, initial=True))
            elif version:
                for event in store.list_events_since(watch.resource, version):
                    watch.add_event(event, encode)
            watch.start_version = max(store.version, version)
            self._watches.setdefault(watch.resource.plural, set()).add(watch)

    async def _stream_lines(self, watch: Watch, options: ListOptions) -> AsyncGenerator[bytes, None]:
        seconds = options.timeout_seconds or random.randint(_SHORTEST_SECONDS, 2 * _SHORTEST_SECONDS)  # noqa: S311 - to spread load
        end = self._loop.time() + seconds
        bookmark_at = _next_bookmark(self._loop.time(), end, options)
        try:
            while True:
                if watch.must_drop:
                    raise StreamDropped
                if watch.pending:
                    lines, watch.pending = watch.pending, []
                    yield b"".join(lines)
                    continue
                if watch.must_end or self._loop.time() >= end:
                    break
                if self._loop.time() >= bookmark_at:
                    bookmark_at = _next_bookmark(self._loop.time(), end, options)
                    if self._delivered_version > watch.sent_version:
                        watch.sent_version = self._delivered_version
                        watch.pending.append(_encode_bookmark(watch.resource, watch.sent_version))
                    continue
                await _wait(watch.wake, min(end, bookmark_at) - self._loop.time())
        finally:
            self._watches.get(watch.resource.plural, set()).discard(watch)


def _next_bookmark(now: float, end: float, options: ListOptions) -> float:
    """Return the time of the next bookmark: in 60 s, but at the latest 2 s before the end.

    Returns:
        Time of the event loop in seconds; infinity if no bookmark follows.
    """
    candidate = min(now + _BOOKMARK_SECONDS, end - _LAST_BOOKMARK_SECONDS)
    return candidate if options.allow_bookmarks and candidate > now else float("inf")


async def _wait(wake: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(wake.wait(), max(0.0, seconds))
    except asyncio.TimeoutError:
        return
    wake.clear()


def _build_cached_encoder() -> _Encode:
    """Return a function that encodes each line once, for all streams that send it."""
    known: dict[tuple[str, TableFormat | None, str, int], bytes] = {}

    def encode(watch: Watch, event_type: str, stored: StoredObject) -> bytes:
        key = (watch.resource.api_version, watch.table, event_type, stored.version)
        if key not in known:
            known[key] = _encode_line(event_type, _encode_object(watch, stored))
        return known[key]

    return encode


def _encode_object(watch: Watch, stored: StoredObject) -> bytes:
    if watch.table is None:
        return encode_as_served(watch.resource, stored)
    metadata = {"resourceVersion": stored.body["metadata"]["resourceVersion"]}
    return encode_json(watch.table.build(watch.resource, [stored], metadata))


def _encode_line(kind: str, text: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + text + b"}\n"


def _encode_bookmark(resource: Resource, version: int, *, initial: bool = False) -> bytes:
    metadata = {"resourceVersion": str(version)}
    more = {"annotations": {"k8s.io/initial-events-end": "true"}} if initial else {}
    return _encode_line(
        "BOOKMARK",
        encode_json({"kind": resource.kind, "apiVersion": resource.api_version, "metadata": {**metadata, **more}}),
    )


def _with_version(stored: StoredObject, version: int) -> StoredObject:
    """Return a copy of an object with the version of a later change.

    A watch sends the copy as DELETED if the change means that its selectors no longer select the object.
    """
    body = json.loads(stored.text)
    body["metadata"]["resourceVersion"] = str(version)
    return StoredObject(body, version, encode_json(body))
