"""Whether the launcher's own pod is being taken away: its node is drained, or its place is wanted by another."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from trainjob.client import Cluster, EventHandler, ObjectEvent
from trainjob.errors import TrainJobError
from trainjob_kfp.identity import WORKFLOW_LABEL
from trainjob_kfp.narration import print_line

# Of the second at most that is left when a run is terminated; an API server answers within a few milliseconds.
_PATIENCE_SECONDS = 0.15


class OwnPod:
    """A context manager that watches one pod, so that what it knows is there when a signal comes.

    The kubelet hears of a deletion at the same time, and its signal may be faster than the watch's news: then the pod
    is asked for once, and not for long.

    A pod that goes carries a deletionTimestamp and, when eviction, preemption or a taint is the reason, first the
    condition DisruptionTarget (Kubernetes 1.36). A run that is terminated leaves its pods where they are: Argo 4.0
    signals their containers. A kubelet that evicts by itself, under pressure or at its node's shutdown, tells the API
    server later than the pod, so that it looks like a termination.
    """

    def __init__(self, home: Cluster, pod: Mapping[str, Any]) -> None:
        """Start with the pod as it was read.

        Args:
            home: the cluster it is in.
            pod: the pod.
        """
        self._home, self._name, self._namespace = home, pod["metadata"]["name"], pod["metadata"]["namespace"]
        self._selector = f"{WORKFLOW_LABEL}={pod['metadata']['labels'][WORKFLOW_LABEL]}"
        self._goes = _goes(pod)
        self._subscription: EventHandler | None = None
        self._questions: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._answered = threading.Event()

    def __enter__(self) -> OwnPod:
        """Watch it from now on."""
        threading.Thread(target=self._answer, name="own-pod", daemon=True).start()
        informer = self._home.labelled_pod_informer(self._namespace, self._selector)
        self._subscription = informer.add_event_handler(self._name, self._on_change)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """No more."""
        self._questions.put(False)
        if self._subscription is not None:
            self._subscription.close()

    def goes(self) -> bool:
        """Whether it is being taken away, as far as can be learned in a moment; safe in a signal handler."""
        if not self._goes:
            self._questions.put(True)
            self._answered.wait(_PATIENCE_SECONDS)
        return self._goes

    def _answer(self) -> None:
        """On a thread of its own, as whoever asks may have been interrupted while it used the connection."""
        if self._questions.get():
            with contextlib.suppress(TrainJobError):
                pod = self._home.get_pod(self._name, self._namespace)
                self._goes = self._goes or pod is None or _goes(pod)
            self._answered.set()

    def _on_change(self, change: ObjectEvent) -> None:
        goes = change.gone or (change.found is not None and _goes(change.found))
        if goes and not self._goes:
            self._goes = True
            print_line(f"pod {self._name} is being taken away: a signal leaves the TrainJob alone")


def _goes(pod: Mapping[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    disrupted = any(one["type"] == "DisruptionTarget" and one["status"] == "True" for one in conditions)
    return disrupted or "deletionTimestamp" in pod["metadata"]
