"""One list+watch of one kind of object in one namespace, shared by any number of waiters.

The thread lists, then watches from the list's resourceVersion, so that each change is delivered once and in order, and
nothing is polled. It survives what a long wait meets:

| Trouble | What it does |
|---|---|
| the stream breaks, ends or is silent; 429, 5xx, no network | goes on from the last version, after a pause |
| what is no event of a watch | the same; lists when it comes again |
| 410 | lists again |
| the server's versions went back: its etcd was restored | lists again |
| it may not watch | lists again and again, once for all |
| it may not list any more: 401, 403, 404, a gateway's page | tries on for a while, as rules and tokens are replaced |
| a list without fields that every list has | tries on for a while, also with the first list |

What does not mend in that while, what is refused from the start, and a mistake of this program go to every subscriber
as an error, since waiting on would be for ever.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from trainjob.cluster.answers import not_understood
from trainjob.cluster.audience import Audience, Change, Deliver, Missing, Subscription
from trainjob.cluster.backoff import Pace
from trainjob.cluster.resources import Resource, newest_version, pages
from trainjob.cluster.response_checks import ResponseCheck, check_json_object
from trainjob.cluster.watch_events import event_lines, read_event
from trainjob.errors import ClusterError, ClusterUnreachable, Expired, InvalidResponse, PermissionDenied


class Source(Protocol):
    """Where a feed's answers come from: [trainjob.cluster.requests.Door][]."""

    server: str

    def ask(
        self,
        method: str,
        path: str,
        *,
        doing: str,
        query: Mapping[str, Any] | None = None,
        check: ResponseCheck = check_json_object,
    ) -> dict[str, Any]:
        """Send a request and return its JSON."""
        ...

    def open(
        self,
        method: str,
        path: str,
        *,
        doing: str,
        query: Mapping[str, Any] | None = None,
        read_seconds: float | None = 0,
    ) -> Any:
        """Send a request and return the open response."""
        ...


class Feed:
    """The shared list+watch; its thread runs while there are subscribers."""

    def __init__(
        self,
        source: Source,
        resource: Resource,
        namespace: str,
        key: Callable[[Mapping[str, Any]], str],
        pace: Pace | None = None,
    ) -> None:
        """Nothing is asked until somebody subscribes.

        Args:
            source: whom to ask.
            resource: for what.
            namespace: where.
            key: by what subscribers name an object.
            pace: how it spends its time.
        """
        self._source, self._resource, self._namespace, self._key = source, resource, namespace, key
        self._path, self._pace = resource.path(namespace), pace or Pace()
        # Held while subscribers are told, so that who has closed its subscription is told nothing more; they may open
        # and close subscriptions meanwhile.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._audience = Audience()
        self._thread: threading.Thread | None = None
        self._stream: Any = None
        self._closed = False
        self._reset()

    def subscribe(self, key: str | None, deliver: Deliver, missing: Missing = lambda: None) -> Subscription:
        """Tell `deliver` about every object with this key (None: about all): those known now at once, then each change.

        Both are called on the feed's thread (the first ones on the caller's), one subscriber after the other: they must
        not block. One that raises is told an error and nothing more.

        Args:
            key: whose objects.
            deliver: takes each change.
            missing: called once when there is no object with this key as far as the feed knows. It may be gone since
                before the subscription, which nothing else would tell, or be so new that its change is yet to come.
        """
        subscription = Subscription(key, deliver, missing, self._remove)
        with self._lock:
            if self._closed:
                deliver(Change(error=self._over()))
                return subscription
            if self._thread is None or not self._thread.is_alive():  # a fork leaves threads behind
                self._begin()
            self._audience.join(subscription)
            self._changed.notify_all()
        return subscription

    def close(self) -> None:
        """End the watch; who still waits is told that as an error."""
        with self._lock:
            self._closed = True
            self._audience.end(self._over())
            self._changed.notify_all()
            self._interrupt()

    def _begin(self) -> None:
        self._audience.forget()
        self._reset()
        name = f"watch-{self._resource.plural}-{self._namespace}"
        thread = threading.Thread(target=self._run, name=name, daemon=True)
        thread.start()
        self._thread = thread

    def _reset(self) -> None:
        """The thread's own: where to go on from (empty: with a list), where that failed, the pauses, the refusals."""
        self._version, self._doubted, self._backoff, self._refused_since = "", "", self._pace.backoff(), 0.0

    def _remove(self, subscription: Subscription) -> None:
        with self._lock:
            self._audience.leave(subscription)
            if not self._audience:
                self._interrupt()

    def _interrupt(self) -> None:
        """Wake the thread out of a read that may last a minute; the version it has is where it goes on."""
        if self._stream is not None:
            self._backoff.reset()  # this is no trouble
            with contextlib.suppress(OSError, ValueError, RuntimeError):  # it has just ended by itself
                self._stream.shutdown()

    def _over(self) -> ClusterError:
        return ClusterUnreachable(f"can't {self._doing('watch')}: the connection to {self._source.server} was closed")

    def _doing(self, verb: str) -> str:
        return f"{verb} {self._resource.plural} in namespace {self._namespace}"

    # -- the feed's own thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._wanted():
                self._go_on()
        except ClusterError as error:
            self._end(error)
        except Exception as error:  # noqa: BLE001 - a mistake of ours, no memory: told to all who wait
            broken = ClusterUnreachable(f"can't {self._doing('watch')}: {type(error).__name__}: {error}")
            broken.__cause__ = error
            self._end(broken)

    def _wanted(self) -> bool:
        """Whether anybody waits, or comes within the linger time; once False, the thread is given up."""
        with self._changed:
            self._changed.wait_for(lambda: self._audience or self._closed, timeout=self._pace.linger)
            if self._audience:
                return True
            self._thread = None
            self._audience.forget()
            return False

    def _end(self, error: ClusterError) -> None:
        with self._lock:
            self._thread = None
            self._audience.end(error)

    def _go_on(self) -> None:
        """One list, where it is needed, and one watch; afterwards a pause."""
        try:
            if not self._version or self._went_back():
                self._list()
        except ClusterError as error:
            self._check_hope(error)
            self._pause(self._backoff.next(error))
            return
        self._refused_since = 0.0
        try:
            self._follow()
        except PermissionDenied:
            self._version = ""
            self._pause(self._pace.poll)
        except ClusterError as error:
            self._doubt(error)
            self._pause(self._backoff.next(error))
        else:
            self._pause(self._backoff.next())

    def _check_hope(self, error: ClusterError) -> None:
        """A list has failed: raise the error if it is final."""
        invalid = isinstance(error, InvalidResponse)  # something else than the API server may answer, for ever
        if (error.retryable and not invalid) or isinstance(error, Expired):
            return
        now = time.monotonic()
        self._refused_since = self._refused_since or now
        if not (self._audience.listed or invalid) or now - self._refused_since >= self._pace.refused:
            raise error

    def _doubt(self, error: ClusterError) -> None:
        """A watch has failed: go on from the same version, as a list does not tell what came and went, or list."""
        if isinstance(error, Expired) or (not error.retryable and self._version == self._doubted):
            self._version = ""
        elif not error.retryable:
            self._doubted = self._version

    def _pause(self, seconds: float) -> None:
        with self._changed:
            if self._audience:
                self._changed.wait_for(lambda: self._closed, timeout=seconds)

    def _went_back(self) -> bool:
        """Whether the server's versions are older than ours.

        Then a watch from ours would wait and say nothing. They are whole numbers to be compared (Kubernetes 1.35,
        KEP-5504); where they are not, nothing is known.
        """
        now = newest_version(self._source.ask, self._path, doing=self._doing("list"))
        return not (now.isdecimal() and self._version.isdecimal() and int(now) >= int(self._version))

    def _list(self) -> None:
        """What is new or changed is told page by page, so that a long list wakes few at once; then what is gone."""
        self._version = ""
        doing, query, listed, version = self._doing("list"), {"labelSelector": self._resource.selector}, set[str](), ""
        for items, version in pages(self._source.ask, self._path, doing=doing, query=query):  # noqa: B007
            for item in items:
                listed.add(self._tell(item, gone=False, doing=doing))
        with self._lock:
            self._audience.settle(listed)
        self._version = version

    def _follow(self) -> None:
        """Watch from the version, which moves on with each event."""
        query = {
            "labelSelector": self._resource.selector,
            "watch": True,
            "resourceVersion": self._version,
            "allowWatchBookmarks": True,
            "timeoutSeconds": self._pace.watch,
        }
        doing = self._doing("watch")
        stream = self._source.open("GET", self._path, doing=doing, query=query, read_seconds=self._pace.silence)
        began = time.monotonic()
        try:
            if self._keep(stream):
                self._hear(stream, doing)
        finally:
            self._keep(None)
            stream.close()
            if time.monotonic() - began >= self._pace.steady:
                self._backoff.reset()

    def _keep(self, stream: Any) -> bool:
        """Whoever leaves from now on may interrupt it; says whether anybody is left."""
        with self._lock:
            self._stream = stream
            return bool(self._audience)

    def _hear(self, stream: Any, doing: str) -> None:
        for line in event_lines(stream, server=self._source.server, doing=doing):
            event = read_event(line, server=self._source.server, doing=doing)
            if event.found is not None:
                self._tell(event.found, gone=event.gone, doing=doing)
            self._version = event.version
            self._backoff.reset()
            if not self._audience:
                return

    def _tell(self, found: Mapping[str, Any], *, gone: bool, doing: str) -> str:
        """Returns the object's uid."""
        try:
            uid, key, found = str(found["metadata"]["uid"]), self._key(found), self._slim(found)
        except (LookupError, TypeError, AttributeError) as error:
            raise not_understood(repr(found).encode(), doing=doing) from error
        with self._lock:
            self._audience.tell(key, found, gone=gone)
        return uid

    def _slim(self, found: Mapping[str, Any]) -> Mapping[str, Any]:
        """Without what nobody here asks for, as thousands are kept: half of a pod is who wrote which field of it."""
        metadata = {name: value for name, value in found["metadata"].items() if name != "managedFields"}
        if not self._resource.spec_kept or "spec" not in found:
            return {**found, "metadata": metadata}
        spec = {name: found["spec"][name] for name in self._resource.spec_kept if name in found["spec"]}
        return {**found, "metadata": metadata, "spec": spec}
