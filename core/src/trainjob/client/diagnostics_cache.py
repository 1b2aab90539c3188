"""Cache of Warning events and Kueue Workloads of a namespace.

All waiters that diagnose a pending job share it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from trainjob.client.resources import EVENTS, Resource, list_all
from trainjob.client.ttl_cache import TtlCache
from trainjob.errors import NotFound, PermissionDenied
from trainjob.status.diagnostics import get_workload_findings, is_admitted
from trainjob.status.nested_fields import get_str

T = TypeVar("T")
ObjectsByKey = Mapping[str, Sequence[dict[str, Any]]]
"""Objects by key; several objects may have the same key."""

_WARNINGS_SECONDS, _WORKLOADS_SECONDS = 15.0, 60.0
_KUEUE = "/apis/kueue.x-k8s.io"
_JOB_UID_LABEL = "kueue.x-k8s.io/job-uid"  # the label (Kueue 0.17 pkg/controller/constants)


class DiagnosticsCache:
    """Cache of lists of whole namespaces, each kept for some seconds.

    The number of list requests does not grow with the number of waiters.
    """

    def __init__(self, request: Callable[..., dict[str, Any]]) -> None:
        """Create an empty cache.

        Args:
            request: function that sends one request, as
                [trainjob.client.http_client.HttpClient.request][] does; a failed request is not repeated.
        """
        self._request = request
        self._lock = threading.Lock()
        self._warnings: dict[str, TtlCache[ObjectsByKey]] = {}  # by namespace
        self._workloads: dict[str, TtlCache[tuple[str, ObjectsByKey]]] = {}

    def get_warnings(self, namespace: str) -> ObjectsByKey:
        """Return the Warning events of a namespace, up to 15 s old, by object name.

        The keys are the involved object's name and each prefix of it that ends before a dash. For example, `tune` has
        the events of `tune-node-0-0-x7x2p`, so that the events of one job are found without a search. The result is
        empty without the permission to list events.

        Raises:
            ClusterError: the list request failed.
        """
        return self._get_cached(self._warnings, namespace, self._read_warnings, _WARNINGS_SECONDS)

    def get_workload(self, job_uid: str, namespace: str) -> dict[str, Any] | None:
        """Return the Kueue Workload of a TrainJob that waits for quota.

        A cached Workload is up to a minute old. It is returned only if it has a reason why Kueue does not admit the
        TrainJob. Otherwise a single Workload is read again, because it may be newer than the cache, or have lost its
        quota since.

        Returns:
            The Workload; empty if Kueue has not created it; None without Kueue or the permission to list Workloads.

        Raises:
            ClusterError: the list request failed.
        """
        path, found = self._get_cached(self._workloads, namespace, self._read_workloads, _WORKLOADS_SECONDS)
        known = next(iter(found.get(job_uid, ())), None)
        if not path or (known and not is_admitted(known) and get_workload_findings(known)):
            return known
        doing, query = (
            f"list workloads of the TrainJob with uid {job_uid}",
            {"labelSelector": f"{_JOB_UID_LABEL}={job_uid}"},
        )
        return next(iter(list_all(self._request, path, doing=doing, query=query)), {})

    def _get_cached(
        self, caches: dict[str, TtlCache[T]], namespace: str, read: Callable[[str], T], seconds: float
    ) -> T:
        with self._lock:
            cache = caches.setdefault(namespace, TtlCache(lambda: read(namespace), seconds))
        return cache.get()

    def _read_warnings(self, namespace: str) -> ObjectsByKey:
        path, doing = EVENTS.collection_path(namespace), f"list events in namespace {namespace}"
        found: dict[str, list[dict[str, Any]]] = {}
        with contextlib.suppress(PermissionDenied):
            for event in list_all(self._request, path, doing=doing, query={"fieldSelector": "type=Warning"}):
                for name in _name_prefixes(get_str(event, "involvedObject", "name")):
                    found.setdefault(name, []).append(event)
        return found

    def _read_workloads(self, namespace: str) -> tuple[str, ObjectsByKey]:
        """Return the URL path of the Workloads, and the Workloads by TrainJob uid.

        The path is empty if Kueue is not installed or the permission to list Workloads is missing.
        """
        doing = f"list workloads in namespace {namespace}"
        found: dict[str, list[dict[str, Any]]] = {}
        with contextlib.suppress(NotFound, PermissionDenied):
            group = self._request("GET", _KUEUE, doing="get the API group kueue.x-k8s.io")
            version = get_str(group, "preferredVersion", "groupVersion")
            path = Resource("workloads", f"/apis/{version}", "").collection_path(namespace)
            for workload in list_all(self._request, path, doing=doing, query={"labelSelector": _JOB_UID_LABEL}):
                found.setdefault(get_str(workload, "metadata", "labels", _JOB_UID_LABEL), []).append(workload)
            return path, found
        return "", found


def _name_prefixes(name: str) -> list[str]:
    parts = name.split("-")[:64]  # a TrainJob's name has at most 32 parts
    return ["-".join(parts[:count]) for count in range(1, len(parts))] + [name]
