"""One list and watch of one kind of object in one namespace, shared by any number of waiters.

The informer's thread lists, then watches from the list's resourceVersion. It delivers each change once and in order,
and does not poll. It recovers from these problems of a long wait:

| Problem | Action of the informer |
|---|---|
| the stream breaks, ends or is silent; 429, 5xx, no network | resumes from the last resourceVersion, after a pause |
| a line that is not a watch event | the same; relists if it happens again at the same resourceVersion |
| 410 Expired | relists |
| the server's resourceVersions are lower than before, because its etcd was restored | relists |
| they are higher again at the reconnect, or another event was lost | relists after each outage and every 10 to 30 min |
| no permission to watch | lists repeatedly, once for all waiters |
| 401, 403, 404 or a gateway's page after a successful list | retries for a while: rules and tokens may be replaced |
| a list without fields that every list has | retries for a while, even the first list |

The last two retry for [InformerTimings.refusal_timeout][trainjob.client.backoff.InformerTimings]. Every handler gets an
error if the problem lasts longer, if the first list is refused, or after a bug in this program. Otherwise the handlers
would wait forever.

This project does not use `kubernetes.informer.SharedInformer`, because kfp requires kubernetes<31, which lacks it. The
one in kubernetes 36.0.3 reconnects after a watch error without a pause and never gives up on 401 or 403.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainjob.client.api_errors import not_kubernetes_response
from trainjob.client.backoff import JITTER, InformerTimings
from trainjob.client.object_cache import EventHandler, ObjectCache, ObjectEvent, OnEvent, OnMissing
from trainjob.client.resources import Resource, get_resource_version, list_pages
from trainjob.client.watch_stream import parse_event, read_lines
from trainjob.errors import (
    ClusterError,
    ClusterUnreachable,
    CredentialPluginFailed,
    Expired,
    InvalidResponse,
    PermissionDenied,
    Unauthorized,
)
from trainjob.threads import start_thread

if TYPE_CHECKING:
    from trainjob.client.http_client import HttpClient


@dataclass(frozen=True)
class InformerState:
    """State of an informer at one moment, for metrics.

    Attributes:
        resource: plural name of the kind, such as `pods`.
        is_running: whether its thread runs, because there are or were just now handlers.
        relists: number of lists after the first one.
        errors: number of lists and watches that failed.
        seconds_since_sync: seconds since the last list, event or bookmark; None before the first list.
    """

    resource: str
    is_running: bool
    relists: int
    errors: int
    seconds_since_sync: float | None


class SharedInformer:
    """One list and watch that many handlers share.

    Its thread runs while there are handlers.
    """

    def __init__(
        self,
        client: HttpClient,
        resource: Resource,
        namespace: str,
        key: Callable[[Mapping[str, Any]], str],
        timings: InformerTimings | None = None,
    ) -> None:
        """Create an informer; it sends no request before a handler is added.

        Args:
            client: client that sends the requests.
            resource: kind of the objects.
            namespace: namespace of the objects.
            key: returns the key by which handlers select an object.
            timings: pauses and limits.
        """
        self._client, self._resource, self._namespace, self._key = client, resource, namespace, key
        self._path, self._timings = resource.collection_path(namespace), timings or InformerTimings()
        # Held while handlers run, so that a closed handler gets no more events. Reentrant, because a handler may add
        # and close handlers.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._cache = ObjectCache()
        self._thread: threading.Thread | None = None
        self._stream: Any = None
        self._closed = False
        self._relists = self._errors = 0
        self._reset()

    def add_event_handler(
        self, key: str | None, on_event: OnEvent, on_missing: OnMissing = lambda: None
    ) -> EventHandler:
        """Call `on_event` with each known object of a key, and then with each change.

        Both callbacks run on the informer's thread (the first calls on the caller's), one handler after the other, so
        they must not block. A handler that raises gets an event with an error and is removed. If the informer is
        closed, or no thread can be started, the handler gets an event with an error, and no other.

        Args:
            key: key of the objects; None for all objects.
            on_event: called with each event.
            on_missing: called once if the cache has no object with this key. The object may have been deleted before
                the handler was added, which no event reports. It may also be so new that its event has not arrived.
        """
        handler = EventHandler(key, on_event, on_missing, self._remove)
        with self._lock:
            try:
                self._ensure_thread()
            except ClusterError as error:
                handler.removed = True
                on_event(ObjectEvent(error=error))
                return handler
            self._cache.add_handler(handler)
            self._changed.notify_all()
        return handler

    def find(self, key: str, uid: str) -> Mapping[str, Any] | None:
        """Return an object as the watch has last reported it, without a request.

        None if it is not known. The method takes no lock, so a signal handler may wait for a thread that calls it.
        """
        return self._cache.find(key, uid)

    @property
    def state(self) -> InformerState:
        """State at this moment."""
        synced_at, thread = self._synced_at, self._thread
        return InformerState(
            resource=self._resource.plural,
            is_running=thread is not None and thread.is_alive(),
            relists=self._relists,
            errors=self._errors,
            seconds_since_sync=None if synced_at is None else time.monotonic() - synced_at,
        )

    def close(self) -> None:
        """Stop the watch and deliver an error to every handler."""
        with self._lock:
            self._closed = True
            self._cache.fail(self._closed_error())
            self._changed.notify_all()
            self._shut_down_stream()

    def _ensure_thread(self) -> None:
        if self._closed:
            raise self._closed_error()
        if self._thread is None or not self._thread.is_alive():  # threads do not survive a fork
            self._cache.clear()
            self._reset()
            self._thread = start_thread(self._run, name=f"watch-{self._resource.plural}-{self._namespace}")

    def _reset(self) -> None:
        """Reset the thread's state; an empty resourceVersion means that it lists first."""
        self._resource_version = self._failed_resource_version = ""
        self._backoff, self._refused_since, self._has_failed = self._timings.backoff(), 0.0, False
        self._synced_at: float | None = None
        self._relist_at = 0.0

    def _remove(self, handler: EventHandler) -> None:
        with self._lock:
            self._cache.remove_handler(handler)
            if not self._cache:
                self._shut_down_stream()

    def _shut_down_stream(self) -> None:
        """Shut down the open stream, because a read may block for a minute.

        The thread then resumes from its last resourceVersion.
        """
        if self._stream is not None:
            self._backoff.reset()  # the end of this stream is not a failure
            with contextlib.suppress(OSError, ValueError, RuntimeError):  # the stream has just ended
                self._stream.shutdown()

    def _closed_error(self) -> ClusterError:
        return ClusterUnreachable(f"can't {self._doing('watch')}: the connection to {self._client.server} was closed")

    def _doing(self, verb: str) -> str:
        return f"{verb} {self._resource.plural} in namespace {self._namespace}"

    # -- the informer's own thread ------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._is_needed():
                self._list_and_watch()
        except ClusterError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - a bug, or no memory; every handler gets the error
            failure = ClusterUnreachable(f"can't {self._doing('watch')}: {type(error).__name__}: {error}")
            failure.__cause__ = error
            self._fail(failure)

    def _is_needed(self) -> bool:
        """Return whether a handler exists or is added within `stop_delay`.

        If it returns False, the thread ends.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._cache or self._closed, timeout=self._timings.stop_delay)
            if self._cache:
                return True
            self._thread = None
            self._cache.clear()
            return False

    def _fail(self, error: ClusterError) -> None:
        with self._lock:
            self._thread = None
            self._cache.fail(error)

    def _list_and_watch(self) -> None:
        """List if necessary, watch once, and pause."""
        try:
            if not self._resource_version or self._is_relist_due() or self._is_server_behind():
                self._list()
        except ClusterError as error:
            self._record_failure()
            self._raise_if_permanent(error)
            self._pause(self._backoff.next(error))
            return
        self._refused_since = 0.0
        try:
            self._watch()
        except PermissionDenied:
            self._record_failure()
            self._resource_version = ""
            self._pause(self._timings.poll_interval)
        except ClusterError as error:
            self._record_failure()
            self._handle_watch_error(error)
            self._pause(self._backoff.next(error))
        else:
            self._pause(self._backoff.next())

    def _record_failure(self) -> None:
        self._errors, self._has_failed = self._errors + 1, True

    def _is_relist_due(self) -> bool:
        """Return whether to list again although no event is known to be lost.

        After a failure the watch resumes first, because a list hides what happened to objects that were deleted since.
        """
        return not self._has_failed and time.monotonic() >= self._relist_at

    def _seconds_until_relist(self) -> int:
        """Return the seconds until the next list, which an outage brings forward."""
        now, outage = time.monotonic(), self._timings.outage
        if self._has_failed and now - (self._synced_at or now) > outage:
            self._relist_at = now + outage * JITTER.uniform(1.0, 2.0)
        return max(1, math.ceil(self._relist_at - now))

    def _raise_if_permanent(self, error: ClusterError) -> None:
        """Raise the error of a failed list unless a retry can help."""
        # Another server than the API server may send invalid responses forever.
        invalid = isinstance(error, InvalidResponse)
        if (_is_outage(error) and not invalid) or isinstance(error, Expired):
            return
        now = time.monotonic()
        self._refused_since = self._refused_since or now
        may_recover = self._cache.listed or invalid or error.worked_before
        if not may_recover or now - self._refused_since >= self._timings.refusal_timeout:
            raise error

    def _handle_watch_error(self, error: ClusterError) -> None:
        """Resume a failed watch from the last resourceVersion, or relist if it has expired.

        Resuming comes first, because a list does not show objects that were created and deleted since. A second
        permanent error at the same resourceVersion also leads to a relist.
        """
        if isinstance(error, Expired) or (
            not _is_outage(error) and self._resource_version == self._failed_resource_version
        ):
            self._resource_version = ""
        elif not _is_outage(error):
            self._failed_resource_version = self._resource_version

    def _pause(self, seconds: float) -> None:
        with self._changed:
            if self._cache:
                self._changed.wait_for(lambda: self._closed, timeout=seconds)

    def _is_server_behind(self) -> bool:
        """Return whether the server's resourceVersions are lower than ours.

        A watch from our version would then wait without an event. resourceVersions are integers that may be compared
        (Kubernetes 1.35, KEP-5504). If they are not integers, this method returns True, so that the informer relists.
        """
        current = get_resource_version(self._client.request, self._path, doing=self._doing("list"))
        known = self._resource_version
        return not (current.isdecimal() and known.isdecimal() and int(current) >= int(known))

    def _list(self) -> None:
        """Deliver new and changed objects page by page, then the deleted ones.

        Paging wakes only few waiters at once.
        """
        self._resource_version = ""
        doing, query = self._doing("list"), {"labelSelector": self._resource.selector}
        listed_uids, version = set[str](), ""
        for items, version in list_pages(self._client.request, self._path, doing=doing, query=query):  # noqa: B007
            for item in items:
                listed_uids.add(self._update_cache(item, deleted=False, doing=doing))
        with self._lock:
            self._relists += self._cache.listed
            self._cache.finish_list(listed_uids)
        self._resource_version, self._synced_at = version, time.monotonic()
        interval = self._timings.relist_interval * JITTER.uniform(0.5, 1.5)
        self._relist_at = self._synced_at + interval

    def _watch(self) -> None:
        """Watch from the last resourceVersion, which each event advances, until a list is due."""
        query = {
            "labelSelector": self._resource.selector,
            "watch": True,
            "resourceVersion": self._resource_version,
            "allowWatchBookmarks": True,
            "timeoutSeconds": min(self._timings.watch_timeout, self._seconds_until_relist()),
        }
        doing = self._doing("watch")
        stream = self._client.open("GET", self._path, doing=doing, query=query, read_seconds=self._timings.max_silence)
        opened_at, self._has_failed = time.monotonic(), False
        try:
            if self._set_stream(stream):
                self._read_events(stream, doing)
        finally:
            self._set_stream(None)
            stream.close()
            if time.monotonic() - opened_at >= self._timings.stable_after:
                self._backoff.reset()

    def _set_stream(self, stream: Any) -> bool:
        """Register the stream for `_shut_down_stream`, and return whether there is a handler."""
        with self._lock:
            self._stream = stream
            return bool(self._cache)

    def _read_events(self, stream: Any, doing: str) -> None:
        for line in read_lines(stream, server=self._client.server, doing=doing):
            event = parse_event(line, server=self._client.server, doing=doing)
            if event.object is not None:
                self._update_cache(event.object, deleted=event.deleted, doing=doing)
            self._resource_version, self._synced_at = event.resource_version, time.monotonic()
            self._backoff.reset()
            if not self._cache:
                return

    def _update_cache(self, obj: Mapping[str, Any], *, deleted: bool, doing: str) -> str:
        """Update the cache, which delivers the event to the handlers; return the object's uid."""
        try:
            uid, key, obj = str(obj["metadata"]["uid"]), self._key(obj), self._resource.without_unused_fields(obj)
        except (LookupError, TypeError, AttributeError) as error:
            raise not_kubernetes_response(repr(obj).encode(), doing=doing) from error
        with self._lock:
            self._cache.update(key, obj, deleted=deleted)
        return uid


def _is_outage(error: ClusterError) -> bool:
    """Return whether the server or the credential plugin is unavailable.

    In contrast to a refusal, an outage may last for any time; the informer continues after it.
    """
    if isinstance(error, CredentialPluginFailed):
        return True
    return error.retryable and not isinstance(error, Unauthorized | PermissionDenied)
