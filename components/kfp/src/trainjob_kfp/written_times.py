"""Times up to which a launcher has printed the log of its TrainJob, in an annotation of the TrainJob.

The launcher that adopts the TrainJob, in another try of the same task, continues the log there. If the earlier
launcher's pod is gone, the log with these lines is gone with it, and the new launcher prints the whole log.
"""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from trainjob.client import SETTLE_SECONDS, STORE_SECONDS, Cluster, LogChannel, WrittenTimes
from trainjob.errors import Conflict, NotFound, OutOfThreads, TrainJobError
from trainjob.lifecycle import JobReference
from trainjob.lifecycle.queues import get_with_timeout
from trainjob.status.nested_fields import get_str
from trainjob.threads import start_thread
from trainjob_kfp.standard_output import print_line

ANNOTATION = "trainjob.dev/log-times"
"""Annotation of a TrainJob: the times as JSON, with name and uid of the pod that printed the log."""
_CHANGED, _END = "changed", "end"
_SECONDS_AT_END, _SECONDS_AT_SIGNAL = 5.0, 0.4  # after a signal, Argo ends the container within a second


def load_times(
    cluster: Cluster, own_cluster: Cluster, pod: Mapping[str, Any] | None, reference: JobReference
) -> WrittenTimes:
    """Return the times that an earlier launcher of this TrainJob has stored.

    Args:
        cluster: client of the cluster that runs the TrainJob.
        own_cluster: client of the cluster that runs the launcher's pod.
        pod: the launcher's pod; None outside of a cluster.
        reference: the TrainJob.
    """
    values = None
    if pod is not None and reference.adopted:
        try:
            stored = _read_times(cluster, reference)
            if stored and _has_pod(own_cluster, pod["metadata"]["namespace"], stored["pod"]):
                values = stored
        except TrainJobError as error:
            print_line(f"the log starts again, because the earlier launcher's pod cannot be read: {error}")
    written_times = WrittenTimes.from_dict(values, reference.uid)
    if written_times.resumption:
        print_line(f"TrainJob {reference}: {written_times.resumption}, in the pod of an earlier launcher")
    return written_times


def _read_times(cluster: Cluster, reference: JobReference) -> dict[str, Any] | None:
    """Return what is stored at the TrainJob, or None if that is nothing of use."""
    job = cluster.get_trainjob(reference.name, reference.namespace) or {}
    try:
        values = json.loads(get_str(job, "metadata", "annotations", ANNOTATION))
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) and isinstance(values.get("pod"), dict) else None


def _has_pod(own_cluster: Cluster, namespace: str, identity: Mapping[str, Any]) -> bool:
    """Return whether a pod of this name and uid still exists."""
    name = identity.get("name")
    pod = own_cluster.get_pod(name, namespace) if isinstance(name, str) and name else None
    return pod is not None and pod["metadata"]["uid"] == identity.get("uid")


class TimeStore:
    """A context manager that stores times in an annotation of the TrainJob.

    A thread stores them at the first line, then every 30 s if lines were printed, and at the end. Enter it before the
    log is opened, so that the log is closed when the context ends.
    """

    def __init__(
        self, cluster: Cluster, pod: Mapping[str, Any] | None, reference: JobReference, written_times: WrittenTimes
    ) -> None:
        """Create the store.

        Args:
            cluster: client of the cluster that runs the TrainJob.
            pod: the launcher's pod; None outside of a cluster, where nothing is stored.
            reference: the TrainJob.
            written_times: the times to store.
        """
        self._cluster, self._reference, self._written_times = cluster, reference, written_times
        self._pod = {name: pod["metadata"][name] for name in ("name", "uid")} if pod else None
        self._inbox: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._log: LogChannel | None = None
        self._has_begun = self._has_changed = self._has_failed = False
        self._is_done = threading.Event()

    def __enter__(self) -> TimeStore:
        """Start the thread; if that is refused, nothing is stored."""
        if self._pod is not None:
            try:
                start_thread(self._run, name="log-times")
                self._written_times.on_change = lambda: self._inbox.put(_CHANGED)
            except OutOfThreads as error:
                self._pod = None
                print_line(f"a launcher that adopts this TrainJob prints its whole log again: {error.message}")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Store the times for the last time."""
        self._end(_SECONDS_AT_END)

    def set_log(self, log: LogChannel) -> None:
        """Set the log that [store_at_signal][] closes."""
        self._log = log

    def store_at_signal(self) -> None:
        """Close the log and store the times, for at most 0.4 s.

        It is safe to call this method in a signal handler.
        """
        self._end(_SECONDS_AT_SIGNAL)

    def _end(self, seconds: float) -> None:
        if self._pod is not None:
            self._inbox.put(_END)
            self._is_done.wait(seconds)

    def _run(self) -> None:
        with contextlib.suppress(_Ended):
            values = self._written_times.to_dict(is_exact=False)
            self._wait_for_change()
            self._store(values)  # without the new lines, because they may not have arrived in the log yet
            while True:
                self._pause(STORE_SECONDS - SETTLE_SECONDS)
                self._has_changed = False
                values = self._written_times.to_dict(is_exact=False)
                self._pause(SETTLE_SECONDS)
                self._store(values)
                self._wait_for_change()
        if self._has_begun:
            if self._log is not None:
                self._log.close()
                self._log.wait_until_written(_SECONDS_AT_SIGNAL)
            self._store(self._written_times.to_dict(is_exact=True))
        self._is_done.set()

    def _wait_for_change(self) -> None:
        while not self._has_changed:
            self._receive(None)

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        with contextlib.suppress(queue.Empty):
            while True:
                self._receive(deadline - time.monotonic())

    def _receive(self, seconds: float | None) -> None:
        """Receive one message.

        Raises:
            _Ended: the process ends.
            queue.Empty: no message arrived in this time.
        """
        if get_with_timeout(self._inbox, seconds) == _END:
            raise _Ended
        self._has_begun = self._has_changed = True

    def _store(self, values: Mapping[str, Any]) -> None:
        job = self._reference
        text = json.dumps({"pod": self._pod, **values}, separators=(",", ":"))
        try:
            self._cluster.patch_trainjob(job.name, job.namespace, job.uid, annotations={ANNOTATION: text})
        except (NotFound, Conflict):
            return  # the TrainJob was deleted, so no launcher can continue its log
        except TrainJobError as error:
            if not self._has_failed:
                self._has_failed = True
                print_line(f"if another launcher continues, it will print the whole log again: {error}")


class _Ended(Exception):
    """The process ends."""
