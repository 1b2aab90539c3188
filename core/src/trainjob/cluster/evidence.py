"""What all who look for the reason why their jobs do not get going read together: warnings, and Kueue's Workloads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from trainjob.cluster.recent import Recent
from trainjob.cluster.resources import EVENTS, Resource, everything
from trainjob.errors import NotFound, PermissionDenied
from trainjob.status.findings import of_workload
from trainjob.status.reading import text

T = TypeVar("T")
Found = Mapping[str, Sequence[dict[str, Any]]]
"""Objects by a key; several may have one."""

_WARNINGS_SECONDS, _WORKLOADS_SECONDS = 15.0, 60.0
_KUEUE = "/apis/kueue.x-k8s.io"
_OWNER = "kueue.x-k8s.io/job-uid"  # the label (Kueue 0.17 pkg/controller/constants)


class Evidence:
    """Reads of whole namespaces that are shared for some seconds, however many ask."""

    def __init__(self, ask: Callable[..., dict[str, Any]]) -> None:
        """Nothing is read yet.

        Args:
            ask: sends one request, as [trainjob.cluster.requests.Door.ask][] does; what fails is not tried again.
        """
        self._ask = ask
        self._lock = threading.Lock()
        self._warnings: dict[str, Recent[Found]] = {}  # by namespace
        self._workloads: dict[str, Recent[tuple[str, Found]]] = {}

    def warnings(self, namespace: str) -> Found:
        """Core events of type Warning, up to 15 s old, by what they are about: its name, and each beginning of it.

        So that a job's are found without looking at all others': `tune` has what is about `tune-node-0-0-x7x2p`. None
        where there is no right to look.

        Raises:
            ClusterError: they can't be read now.
        """
        return self._recent(self._warnings, namespace, self._read_warnings, _WARNINGS_SECONDS)

    def workload(self, job_uid: str, namespace: str) -> dict[str, Any] | None:
        """The Kueue Workload of a TrainJob that waits for quota: up to a minute old, where that one tells why it waits.

        One that is not known or tells nothing is read anew, alone: it may be younger than what is known, or have been
        admitted then and have lost its quota meanwhile.

        Returns:
            It; empty where Kueue has made none; None where there is no Kueue, or no right to look.

        Raises:
            ClusterError: they can't be read now.
        """
        path, found = self._recent(self._workloads, namespace, self._read_workloads, _WORKLOADS_SECONDS)
        known = next(iter(found.get(job_uid, ())), None)
        if not path or (known and of_workload(known)):
            return known
        doing, query = f"read the workload of {job_uid}", {"labelSelector": f"{_OWNER}={job_uid}"}
        return next(iter(everything(self._ask, path, doing=doing, query=query)), {})

    def _recent(self, known: dict[str, Recent[T]], namespace: str, read: Callable[[str], T], seconds: float) -> T:
        with self._lock:
            recent = known.setdefault(namespace, Recent(lambda: read(namespace), seconds))
        return recent.get()

    def _read_warnings(self, namespace: str) -> Found:
        path, doing = EVENTS.path(namespace), f"list events in namespace {namespace}"
        found: dict[str, list[dict[str, Any]]] = {}
        with contextlib.suppress(PermissionDenied):
            for event in everything(self._ask, path, doing=doing, query={"fieldSelector": "type=Warning"}):
                for name in _beginnings(text(event, "involvedObject", "name")):
                    found.setdefault(name, []).append(event)
        return found

    def _read_workloads(self, namespace: str) -> tuple[str, Found]:
        """Where they are, and they by their TrainJobs' uids; nowhere when they can't be read."""
        doing = f"list workloads in namespace {namespace}"
        found: dict[str, list[dict[str, Any]]] = {}
        with contextlib.suppress(NotFound, PermissionDenied):
            group = self._ask("GET", _KUEUE, doing="find Kueue")
            version = text(group, "preferredVersion", "groupVersion")
            path = Resource("workloads", f"/apis/{version}", "").path(namespace)
            for workload in everything(self._ask, path, doing=doing, query={"labelSelector": _OWNER}):
                found.setdefault(text(workload, "metadata", "labels", _OWNER), []).append(workload)
            return path, found
        return "", found


def _beginnings(name: str) -> list[str]:
    parts = name.split("-")[:64]  # a TrainJob's name has at most 32
    return ["-".join(parts[:count]) for count in range(1, len(parts))] + [name]
