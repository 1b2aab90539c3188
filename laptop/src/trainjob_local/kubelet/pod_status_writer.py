"""The status of a pod, kept by its kubelet and written to the API server."""

from __future__ import annotations

import threading
from datetime import datetime

from trainjob.errors import ClusterError
from trainjob_local.kubelet.pod_status import (
    build_pod_conditions,
    build_pod_status,
    initial_container_status,
    qos_class,
    waiting_state,
)
from trainjob_local.objects import Json, ObjectApi, format_timestamp, parse_timestamp, utc_now

__all__ = ["PodStatusWriter"]


class PodStatusWriter:
    """Writer of a pod's status, which the threads of its containers report; thread-safe.

    If the pod already has a status because its kubelet was restarted, the writer continues from that status.

    Attributes:
        phase: the pod's phase.
        deleted: true when the pod's object is deleted; the status is then not written any more.
        failure: `reason` and `message` in the status of a pod that the kubelet itself fails; empty for other pods.
        volumes_mounted: true when all volumes are mounted.
    """

    def __init__(self, api: ObjectApi, pod: Json) -> None:
        self._api, self._pod = api, pod
        spec, status = pod["spec"], pod.get("status") or {}
        self.phase: str = status.get("phase", "Pending")
        self.deleted = False
        self.failure: dict[str, str] = {}
        self.volumes_mounted = False
        self._started: datetime = parse_timestamp(status["startTime"]) if status.get("startTime") else utc_now()
        self._conditions: list[Json] = list(status.get("conditions") or [])
        self._lock = threading.Lock()
        init, main = spec.get("initContainers") or [], spec["containers"]
        self._init, self._main = [one["name"] for one in init], [one["name"] for one in main]
        known = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
        first = waiting_state("PodInitializing" if init else "ContainerCreating")
        self._containers: dict[str, Json] = {
            one["name"]: initial_container_status(one, first) for one in (*init, *main)
        }
        self._containers.update({one["name"]: {"lastState": {}, **one} for one in known})

    def get_container(self, name: str) -> Json:
        """Return a copy of the status of a container."""
        with self._lock:
            return dict(self._containers[name])

    def update_container(self, name: str, **change: object) -> None:
        """Change the status of a container; `push` writes it to the API server."""
        with self._lock:
            self._containers[name].update(change)

    @property
    def has_ended(self) -> bool:
        """Whether all containers have ended, except init containers."""
        with self._lock:
            return all("terminated" in self._containers[name]["state"] for name in self._main)

    def merge_conditions(self, pod: Json) -> None:
        """Keep conditions that other components set, such as a scheduler that preempts the pod."""
        with self._lock:
            known = {one["type"] for one in self._conditions}
            theirs = (pod.get("status") or {}).get("conditions") or []
            self._conditions += [one for one in theirs if one["type"] not in known]

    def mark_evicted(self, reason: str, message: str, now: datetime) -> None:
        """Set the failure and the condition DisruptionTarget of a pod that the node evicts.

        Source: Kubernetes `pkg/kubelet/eviction/eviction_manager.go`.
        """
        details = {"reason": "TerminationByKubelet", "message": message, "lastTransitionTime": format_timestamp(now)}
        self.failure = {"reason": reason, "message": message}
        self.merge_conditions({"status": {"conditions": [{"type": "DisruptionTarget", "status": "True", **details}]}})

    def push(self) -> None:
        """Write the status to the API server.

        It is not an error if the pod was deleted or replaced.
        """
        with self._lock:
            if self.deleted:
                return
            init = [self._containers[name] for name in self._init]
            main = [self._containers[name] for name in self._main]
            now, volumes_mounted = utc_now(), self.volumes_mounted
            self._conditions = build_pod_conditions(
                self.phase, init, main, self._conditions, now, volumes_mounted=volumes_mounted
            )
            pod_status = build_pod_status(self.phase, self._started, init, main, self._conditions)
            status = {**pod_status, "qosClass": qos_class(self._pod["spec"]), **self.failure}
            meta = self._pod["metadata"]
            try:
                body = {"metadata": {"uid": meta["uid"]}, "status": status}
                self._api.patch("pods", meta["name"], body, meta["namespace"], subresource="status")
            except ClusterError as error:
                if error.status not in (404, 409):
                    raise
