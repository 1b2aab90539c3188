"""Watches: one hub passes all changes to the open streams, on the event loop.

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

from trainjob_local.apiserver.event_shapes import view_text
from trainjob_local.apiserver.faults import Faults
from trainjob_local.apiserver.listing import selects
from trainjob_local.apiserver.refusals import Refusal, too_large_version
from trainjob_local.apiserver.registry import Registry
from trainjob_local.apiserver.requests import ListOptions
from trainjob_local.apiserver.resources import Resource
from trainjob_local.apiserver.store import Change, Stored, encoded

__all__ = ["Dropped", "Watch", "WatchHub"]

_BOOKMARK_SECONDS, _LAST_BOOKMARK_SECONDS = 60.0, 2.0
_SHORTEST_SECONDS = 1800
_MOST_PENDING = 10_000
_Encode = Callable[[Resource, str, Stored], bytes]


class Dropped(Exception):
    """A stream that ends without a proper end, like a lost connection."""


@dataclass(eq=False)
class Watch:
    """One open stream.

    Attributes:
        view: the resource in the API group that the client watches.
        namespace: namespace of the watch; empty for all.
        chosen: function that tests whether the selectors select an object.
        position: version up to which `pending` contained all changes when the watch began.
        known_version: newest version that the client has seen: of the last event, or of the start of the watch.
        pending: lines to send.
        wake: event that is set when lines are pending or the stream has to end.
        ended: whether the stream has to end properly.
        dropped: whether the connection has to break off.
    """

    view: Resource
    namespace: str
    chosen: Callable[[Stored], bool]
    position: int = 0
    known_version: int = 0
    pending: list[bytes] = field(default_factory=list)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False
    dropped: bool = False

    def offer(self, change: Change, encode: _Encode) -> None:
        """Add the event for a change to the pending lines, if the change concerns this watch.

        An object that the selectors begin to select becomes ADDED. One that they stop selecting becomes DELETED.
        If too many lines are pending, the stream is marked as dropped.

        Args:
            change: the change of an object.
            encode: function that encodes an event as a line.
        """
        if change.version <= self.position or (self.namespace and change.key[0] != self.namespace):
            return
        now = change.type != "DELETED" and self.chosen(change.current)
        before = change.previous is not None and self.chosen(change.previous)
        if not now and not before:
            return
        if now:
            self.pending.append(encode(self.view, "MODIFIED" if before else "ADDED", change.current))
        elif change.previous is not None:
            shown = change.current if change.type == "DELETED" else _renumbered(change.previous, change.version)
            self.pending.append(encode(self.view, "DELETED", shown))
        self.known_version = change.version
        self.dropped = self.dropped or len(self.pending) > _MOST_PENDING  # the client reads too slowly
        self.wake.set()


class WatchHub:
    """All open watches of a server.

    Args:
        registry: registry whose changes are sent.
        faults: faults of the server, which can expire or drop watches.
        loop: event loop of the server.
    """

    def __init__(self, registry: Registry, faults: Faults, loop: asyncio.AbstractEventLoop) -> None:
        self._registry, self._faults, self._loop = registry, faults, loop
        self._changes: deque[Change] = deque()
        self._scheduled = False
        self._watches: dict[str, set[Watch]] = {}
        self._position = registry.store.version
        self._subscription = registry.subscribe(self._note, replay=False)
        faults.on_drop(lambda: self._call(self._drop))

    def close(self) -> None:
        """End all streams properly; any thread may call this."""
        self._subscription.close()
        self._call(self._end)

    def _call(self, function: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)

    def _note(self, change: Change) -> None:
        """Queue a change for the event loop.

        The thread that writes calls this while it holds the registry's lock.
        """
        self._changes.append(change)
        if not self._scheduled:
            self._scheduled = True
            self._call(self._deliver)

    def _deliver(self) -> None:
        self._scheduled = False
        while self._changes:
            change = self._changes.popleft()
            encode = _encoder()
            for watch in self._watches.get(change.resource.plural, ()):
                watch.offer(change, encode)
            self._position = max(self._position, change.version)

    def _all(self) -> list[Watch]:
        return [watch for watches in self._watches.values() for watch in watches]

    def _drop(self) -> None:
        for watch in self._all():
            watch.dropped = True
            watch.wake.set()

    def _end(self) -> None:
        for watch in self._all():
            watch.ended = True
            watch.wake.set()

    def open(self, view: Resource, namespace: str, options: ListOptions) -> AsyncGenerator[bytes, None]:
        """Open a stream and return the generator of its lines.

        If the resourceVersion is too old or too new, the stream consists of one ERROR event.

        Raises:
            Refusal: 400, 422 or 500 if the options are not valid.
        """
        chosen = selects(view, options)
        wanted = options.number(watch=True)
        watch = Watch(view, namespace, chosen)
        try:
            self._start(watch, wanted, options)
        except Refusal as refusal:
            if refusal.code not in (410, 504):
                raise
            watch.pending = [_line("ERROR", encoded(refusal.to_status()))]
            watch.ended = True
        return self._lines(watch, options)

    def _start(self, watch: Watch, wanted: int, options: ListOptions) -> None:
        """Add the initial events to a watch and register it.

        Both happen under the registry's lock, so that no change is lost between them.
        """
        if wanted:
            self._faults.check_watch()
        from_state = options.initial if options.initial is not None else wanted == 0
        encode = _encoder()
        with self._registry.lock:
            store = self._registry.store
            if options.initial and wanted > store.version:
                raise too_large_version(wanted, store.version)
            watch.known_version = store.version if from_state else wanted
            if from_state:
                found = [stored for stored in store.all(watch.view, watch.namespace) if watch.chosen(stored)]
                watch.pending = [encode(watch.view, "ADDED", stored) for stored in found]
                if options.bookmarks:
                    watch.pending.append(_bookmark(watch.view, store.version, initial=True))
            elif wanted:
                for change in store.since(watch.view, wanted):
                    watch.offer(change, encode)
            watch.position = max(store.version, wanted)
            self._watches.setdefault(watch.view.plural, set()).add(watch)

    async def _lines(self, watch: Watch, options: ListOptions) -> AsyncGenerator[bytes, None]:
        seconds = options.seconds or random.randint(_SHORTEST_SECONDS, 2 * _SHORTEST_SECONDS)  # noqa: S311 - to spread load
        end = self._loop.time() + seconds
        bookmark_at = _next_bookmark(self._loop.time(), end, options)
        try:
            while True:
                if watch.dropped:
                    raise Dropped
                if watch.pending:
                    lines, watch.pending = watch.pending, []
                    yield b"".join(lines)
                    continue
                if watch.ended or self._loop.time() >= end:
                    break
                if self._loop.time() >= bookmark_at:
                    bookmark_at = _next_bookmark(self._loop.time(), end, options)
                    if self._position > watch.known_version:
                        watch.known_version = self._position
                        watch.pending.append(_bookmark(watch.view, watch.known_version))
                    continue
                await _wait(watch.wake, min(end, bookmark_at) - self._loop.time())
        finally:
            self._watches.get(watch.view.plural, set()).discard(watch)


def _next_bookmark(now: float, end: float, options: ListOptions) -> float:
    """Return the time of the next bookmark: in 60 s, but at the latest 2 s before the end.

    Returns:
        Time of the event loop in seconds; infinity if no bookmark follows.
    """
    candidate = min(now + _BOOKMARK_SECONDS, end - _LAST_BOOKMARK_SECONDS)
    return candidate if options.bookmarks and candidate > now else float("inf")


async def _wait(wake: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(wake.wait(), max(0.0, seconds))
    except asyncio.TimeoutError:
        return
    wake.clear()


def _encoder() -> _Encode:
    """Return a function that encodes each line once, for all streams that send it."""
    known: dict[tuple[str, str, int], bytes] = {}

    def encode(view: Resource, kind: str, stored: Stored) -> bytes:
        key = (view.api_version, kind, stored.version)
        if key not in known:
            known[key] = _line(kind, view_text(view, stored))
        return known[key]

    return encode


def _line(kind: str, text: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + text + b"}\n"


def _bookmark(view: Resource, version: int, *, initial: bool = False) -> bytes:
    metadata = {"resourceVersion": str(version)}
    more = {"annotations": {"k8s.io/initial-events-end": "true"}} if initial else {}
    return _line(
        "BOOKMARK", encoded({"kind": view.kind, "apiVersion": view.api_version, "metadata": {**metadata, **more}})
    )


def _renumbered(stored: Stored, version: int) -> Stored:
    """Return a copy of an object with the version of a later change.

    A watch sends the copy as DELETED if the change means that its selectors no longer select the object.
    """
    body = json.loads(stored.text)
    body["metadata"]["resourceVersion"] = str(version)
    return Stored(body, version, encoded(body))
