"""Detection of a deletion or disruption of the launcher's own pod, such as a node drain."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

from trainjob.client import Cluster, EventHandler, ObjectEvent
from trainjob_kfp.identity import WORKFLOW_LABEL
from trainjob_kfp.signal_read import SignalRead
from trainjob_kfp.standard_output import print_line


class OwnPodWatch:
    """Watch on one pod, whose result is available when a signal arrives; a context manager.

    The kubelet learns of a deletion at the same time as the watch, and its signal may arrive first. The pod is then
    read once, with a short timeout.

    A pod that is being deleted has a deletionTimestamp. If the reason is an eviction, a preemption or a taint, the pod
    gets the condition DisruptionTarget first (Kubernetes 1.36). A terminated run does not delete its pods: Argo 4.0
    signals their containers.

    A kubelet that evicts a pod itself, under resource pressure or at its node's shutdown, signals the pod before it
    updates the API server. Such an eviction looks like a terminated run.
    """

    def __init__(self, cluster: Cluster, pod: Mapping[str, Any]) -> None:
        """Create the watch from the pod as it was read.

        Args:
            cluster: client of the pod's cluster.
            pod: the pod.
        """
        self._cluster, self._name, self._namespace = cluster, pod["metadata"]["name"], pod["metadata"]["namespace"]
        self._selector = f"{WORKFLOW_LABEL}={pod['metadata']['labels'][WORKFLOW_LABEL]}"
        self._being_removed = _is_being_removed(pod)
        self._event_handler: EventHandler | None = None
        self._signal_read = SignalRead("own-pod", self._read_pod)

    def __enter__(self) -> OwnPodWatch:
        """Start to watch the pod."""
        self._signal_read.start()
        informer = self._cluster.labelled_pod_informer(self._namespace, self._selector)
        self._event_handler = informer.add_event_handler(self._name, self._on_event)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop the watch."""
        self._signal_read.close()
        if self._event_handler is not None:
            self._event_handler.close()

    def is_being_removed(self) -> bool:
        """Return whether the pod is known to be deleted or disrupted.

        If the watch does not report it, the pod is read, and the method waits up to 0.15 s for the response. It is safe
        to call this method in a signal handler.
        """
        if not self._being_removed:
            self._signal_read.run()
        return self._being_removed

    def _read_pod(self) -> None:
        pod = self._cluster.get_pod(self._name, self._namespace)
        self._being_removed = self._being_removed or pod is None or _is_being_removed(pod)

    def _on_event(self, event: ObjectEvent) -> None:
        being_removed = event.deleted or (event.object is not None and _is_being_removed(event.object))
        if being_removed and not self._being_removed:
            self._being_removed = True
            print_line(f"pod {self._name} is being deleted or disrupted: after a signal, the TrainJob continues")


def _is_being_removed(pod: Mapping[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    disrupted = any(
        condition["type"] == "DisruptionTarget" and condition["status"] == "True" for condition in conditions
    )
    return disrupted or "deletionTimestamp" in pod["metadata"]
