"""One list+watch of one kind of object in one namespace, shared by any number of waiters.

The thread lists, then watches from the list's resourceVersion, so that each change is delivered once and in order, and
nothing is polled. It survives what a long wait meets: 410 means list again; 429, 5xx, network failures and silence
mean try again with jittered back-off; no right to watch means one shared list every few seconds. What it can't mend by
itself - the credentials are refused, a permission is missing - goes to every subscriber as an error, since waiting on
would be for ever.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from trainjob.cluster.answers import from_network, from_status
from trainjob.cluster.backoff import Backoff
from trainjob.errors import ClusterError, Expired, PermissionDenied

_WATCH_SECONDS = 290  # the server ends a watch then; below the idle limits of common load balancers
_SILENCE_SECONDS = 90.0  # an API server sends a bookmark about every 60 s; more silence is a half-open stream
_POLL_SECONDS = 5.0
_LINGER_SECONDS = 5.0  # the last waiter has left: keep the watch this long for the next one
_PAGE = 500


@dataclass(frozen=True)
class Resource:
    """One kind of namespaced object.

    Attributes:
        plural: such as `trainjobs`.
        prefix: the API group's path, such as `/apis/batch/v1`.
        selector: the label selector that every list and watch uses.
    """

    plural: str
    prefix: str
    selector: str

    def path(self, namespace: str, name: str = "") -> str:
        """The URL's path of the collection, or of one object."""
        return f"{self.prefix}/namespaces/{namespace}/{self.plural}" + (f"/{name}" if name else "")


@dataclass(frozen=True)
class Change:
    """What a subscriber is told.

    Attributes:
        found: the object as it is now, or as it was last when it is gone; None with an error.
        gone: the object does not exist any more.
        error: the feed can't go on; nothing more will come.
    """

    found: Mapping[str, Any] | None = None
    gone: bool = False
    error: ClusterError | None = None


class Source(Protocol):
    """Where a feed's answers come from: [trainjob.cluster.requests.Door][]."""

    server: str

    def ask(self, method: str, path: str, *, doing: str, query: Mapping[str, Any] | None = None) -> dict[str, Any]:
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


Deliver = Callable[[Change], None]


def list_pages(
    ask: Callable[..., dict[str, Any]], path: str, *, doing: str, query: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], str]:
    """All objects of a collection, read page by page, and the resourceVersion to watch from.

    Args:
        ask: sends one request, as [trainjob.cluster.requests.Door.ask][] does.
        path: the collection's path.
        doing: what this is for, for error messages.
        query: selectors.

    Raises:
        ClusterError: a page could not be read.
    """
    found: list[dict[str, Any]] = []
    more: str | None = None
    while True:
        answer = ask("GET", path, doing=doing, query={**query, "limit": _PAGE, "continue": more})
        found += answer.get("items") or []
        more = answer["metadata"].get("continue") or None
        if not more:
            return found, str(answer["metadata"]["resourceVersion"])


class Subscription:
    """One waiter's place at a feed; close it when the waiting is over."""

    def __init__(self, key: str | None, deliver: Deliver, leave: Callable[[Subscription], None]) -> None:
        self.key, self.deliver, self._leave = key, deliver, leave

    def close(self) -> None:
        """Deliver nothing more."""
        self._leave(self)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Feed:
    """The shared list+watch; its thread runs while there are subscribers."""

    def __init__(
        self, source: Source, resource: Resource, namespace: str, key: Callable[[Mapping[str, Any]], str]
    ) -> None:
        self._source, self._resource, self._namespace, self._key = source, resource, namespace, key
        self._path = resource.path(namespace)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._subscribers: set[Subscription] = set()
        self._objects: dict[str, Mapping[str, Any]] = {}  # by uid
        self._thread: threading.Thread | None = None
        self._stream: Any = None
        self._closed = False

    def subscribe(self, key: str | None, deliver: Deliver) -> Subscription:
        """Tell `deliver` about every object with this key (None: about all): those known now at once, then each change.

        `deliver` is called on the feed's thread (the first ones on the caller's) and must not block. Objects created
        before the subscription and missing in a later list are reported by nobody: read once after subscribing.
        """
        subscription = Subscription(key, deliver, self._remove)
        with self._lock:
            self._subscribers.add(subscription)
            for found in self._objects.values():
                if key in (None, self._key(found)):
                    deliver(Change(found))
            if self._thread is None or not self._thread.is_alive():
                self._objects = {}
                name = f"watch-{self._resource.plural}-{self._namespace}"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return subscription

    def close(self) -> None:
        """End the watch; subscribers are told nothing more."""
        with self._lock:
            self._closed = True
            self._subscribers.clear()
            self._changed.notify_all()
        self._interrupt()

    def _remove(self, subscription: Subscription) -> None:
        with self._lock:
            self._subscribers.discard(subscription)
            idle = not self._subscribers
        if idle:
            self._interrupt()

    # -- the feed's own thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        backoff, version = Backoff(), ""
        while self._wanted():
            try:
                version = version or self._list()
                for newer in self._follow(version):
                    version = newer
                    backoff.reset()
            except Expired:
                version = ""
            except PermissionDenied as error:
                if not version:
                    self._fail(error)
                    return
                version = ""  # may list but not watch: one list for all, every few seconds
                self._pause(_POLL_SECONDS)
            except ClusterError as error:
                if not error.retryable:
                    self._fail(error)
                    return
                self._pause(backoff.next(error))

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed, timeout=seconds)

    def _wanted(self) -> bool:
        """Whether anybody waits, or comes within the linger time; once False, the thread is given up."""
        with self._changed:
            self._changed.wait_for(lambda: self._subscribers or self._closed, timeout=_LINGER_SECONDS)
            if self._closed or not self._subscribers:
                self._thread = None
                return False
            return True

    def _list(self) -> str:
        query = {"labelSelector": self._resource.selector}
        found, version = list_pages(self._source.ask, self._path, doing=self._doing("list"), query=query)
        self._replace(found)
        return version

    def _follow(self, version: str) -> Iterator[str]:
        """Watch from a version; yields the version to go on from after each event."""
        query = {
            "labelSelector": self._resource.selector,
            "watch": True,
            "resourceVersion": version,
            "allowWatchBookmarks": True,
            "timeoutSeconds": _WATCH_SECONDS,
        }
        doing = self._doing("watch")
        stream = self._source.open("GET", self._path, doing=doing, query=query, read_seconds=_SILENCE_SECONDS)
        self._stream = stream
        try:
            for line in _lines(stream, server=self._source.server, doing=doing):
                yield self._apply(json.loads(line), doing)
                if not self._subscribers:
                    return
        except ValueError as error:  # cut in the middle of a line
            raise from_network(error, server=self._source.server, doing=doing) from error
        finally:
            self._stream = None
            stream.close()

    def _apply(self, event: Mapping[str, Any], doing: str) -> str:
        kind, found = event["type"], event["object"]
        if kind == "ERROR":
            code = int(found.get("code") or 500)
            raise from_status(code, json.dumps(found), {}, server=self._source.server, doing=doing)
        if kind != "BOOKMARK":
            self._tell(found, gone=kind == "DELETED")
        return str(found["metadata"]["resourceVersion"])

    def _replace(self, found: Sequence[Mapping[str, Any]]) -> None:
        """After a list: what is new or changed is told, what is missing is gone."""
        listed = {item["metadata"]["uid"]: item for item in found}
        for uid, known in list(self._objects.items()):
            if uid not in listed:
                self._tell(known, gone=True)
        for uid, item in listed.items():
            before = self._objects.get(uid)
            if before is None or before["metadata"]["resourceVersion"] != item["metadata"]["resourceVersion"]:
                self._tell(item, gone=False)

    def _tell(self, found: Mapping[str, Any], *, gone: bool) -> None:
        uid, key = found["metadata"]["uid"], self._key(found)
        with self._lock:
            if gone:
                self._objects.pop(uid, None)
            else:
                self._objects[uid] = found
            for subscription in [s for s in self._subscribers if s.key in (None, key)]:
                subscription.deliver(Change(found, gone=gone))

    def _fail(self, error: ClusterError) -> None:
        with self._lock:
            self._thread = None
            for subscription in self._subscribers:
                subscription.deliver(Change(error=error))
            self._subscribers.clear()

    def _interrupt(self) -> None:
        """Wake the thread out of a read that may last a minute; the version it has is where it goes on."""
        stream = self._stream
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):  # it has just ended by itself
                stream.shutdown()

    def _doing(self, verb: str) -> str:
        return f"{verb} {self._resource.plural} in namespace {self._namespace}"


def _lines(stream: Any, *, server: str, doing: str) -> Iterator[bytes]:
    """The complete lines of a streamed answer, without their ends."""
    import urllib3

    rest = b""
    try:
        for chunk in stream.stream(amt=None, decode_content=False):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from (line for line in lines if line)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise from_network(error, server=server, doing=doing) from error
