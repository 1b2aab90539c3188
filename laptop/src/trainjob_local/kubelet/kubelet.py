"""A kubelet without containers: it runs the pods of one Node as processes of this machine.

It serves two clusters: a real kube-apiserver (tests/controlplane/run_kubelet.py) and the laptop cluster, in whose
process it runs. Differences from a real kubelet: local environments replace images, and a pull creates them. Volume
paths are rewritten as text. Pods have the address 127.0.0.1. There are no probes, sidecars, limits and exec. With
`isolation` volumes are at their paths, and commands can be run in containers. Pods share the network of this machine,
so each JobSet gets a port of its own instead of the Trainer's.

A kubelet that is restarted on its old state treats pods that ran as a real kubelet does after its node was rebooted:
the container is lost (exit code 137), then the restart policy applies.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

from trainjob.errors import ClusterError
from trainjob_local.events import EventRecorder
from trainjob_local.kubelet.container_logs import LogOptions
from trainjob_local.kubelet.image_puller import ImagePuller
from trainjob_local.kubelet.master_ports import MasterPorts
from trainjob_local.kubelet.node_context import NodeContext
from trainjob_local.kubelet.pods import PodWorker
from trainjob_local.kubelet.processes import ProcessManager
from trainjob_local.kubelet.settings import KubeletSettings
from trainjob_local.objects import Json, ObjectApi, format_timestamp, utc_now

__all__ = ["FAULT_ANNOTATION", "Kubelet", "LogUnavailable"]

FAULT_ANNOTATION = "local.trainjob.dev/fault"
"""Annotation of a running pod that injects a fault, as it occurs on a real node.

The values are `OOMKilled` and `Evicted`.
"""

_LOG = logging.getLogger(__name__)
_REFRESH_SECONDS = 60.0  # the kubelet's syncFrequency (Kubernetes 1.36)
_STOP_GRACE_SECONDS = 2.0  # seconds that a container has to end when the kubelet stops


class LogUnavailable(Exception):
    """Error for a log that does not exist, or does not exist yet.

    Attributes:
        code: HTTP status.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Kubelet:
    """A kubelet that registers one Node and runs the pods on it.

    Args:
        api: client of the API server.
        settings: the settings of the Node.
        remove: folder to remove when this process ends, even if it is killed; None to remove nothing.
    """

    def __init__(self, api: ObjectApi, settings: KubeletSettings, *, remove: Path | None = None) -> None:
        settings.pod_folder("").mkdir(mode=0o700, parents=True, exist_ok=True)  # it will hold pods' Secrets and logs
        self._api, self._settings = api, settings
        self._processes = ProcessManager(remove=remove)
        events = EventRecorder(api, "kubelet", host=settings.node)
        self._image_puller = ImagePuller(self._processes)
        self._node = NodeContext(settings, api, events, self._processes, self._image_puller, MasterPorts())
        self._pods: dict[str, PodWorker] = {}
        self._lock = threading.Lock()
        self._stopping = False
        self._stopped = threading.Event()

    def start(self) -> None:
        """Register the Node, then run its pods.

        Raises:
            ClusterError: the API server rejects the Node.
        """
        self._register()
        self._api.watch("pods", self._on_pod, field_selector=f"spec.nodeName={self._settings.node}")
        threading.Thread(target=self._refresh_volumes, name="volumes", daemon=True).start()

    def stop(self) -> None:
        """End the processes of all pods; the objects remain, as when a node goes down."""
        with self._lock:
            self._stopping = True
            self._stopped.set()
            pods = list(self._pods.values())
        for pod in pods:
            pod.status_writer.deleted = True
            pod.end(_STOP_GRACE_SECONDS)
        for pod in pods:
            pod.join(_STOP_GRACE_SECONDS * 2)
        self._image_puller.close()
        self._processes.close()

    def open_log(
        self,
        pod: tuple[str, str],
        container: str,
        options: LogOptions,
        *,
        previous: bool = False,
        cancelled: threading.Event | None = None,
    ) -> Iterator[bytes]:
        """Open the log of a container.

        While the container waits for its restart, this is the log of its last run, whether `previous` is set or not.

        Source: Kubernetes 1.36 `pkg/kubelet/kubelet_pods.go` (validateContainerLogStatus).

        Args:
            pod: namespace and name.
            container: name of the container.
            options: the query parameters of the log request.
            previous: whether to read the run before the last restart.
            cancelled: set when the reader has disconnected.

        Raises:
            LogUnavailable: the pod or container does not exist, or has no log yet; the text is the kubelet's.
        """
        found = self.find_pod(pod)
        running = found.container(container) if found else None
        if found is None or running is None:
            raise LogUnavailable(404, f'pod "{pod[1]}" not found in namespace "{pod[0]}"')
        status = found.status_writer.get_container(container)
        waits = "waiting" in status["state"] and "terminated" in status.get("lastState", {})
        restart = status["restartCount"] - (previous and not waits)
        log = running.log(restart)
        if log is None and restart and (waits or not previous):  # the container is about to start
            log = running.log(restart - 1)
        if log is not None:
            return log.read(options, cancelled)
        if previous:
            raise LogUnavailable(400, f'previous terminated container "{container}" in pod "{pod[1]}" not found')
        if reason := status["state"].get("waiting", {}).get("reason"):
            raise LogUnavailable(400, f'container "{container}" in pod "{pod[1]}" is waiting to start: {reason}')
        return iter(())

    def find_pod(self, pod: tuple[str, str]) -> PodWorker | None:
        """Return the pod with a namespace and name, or None if it does not exist."""
        with self._lock:
            return next((worker for worker in self._pods.values() if worker.identity == pod), None)

    def _register(self) -> None:
        name = self._settings.node
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        try:
            self._api.create("nodes", node)
        except ClusterError as error:
            if error.status != 409:
                raise
        # Admission puts a not-ready taint on new Nodes. No node controller runs here to remove it.
        self._api.patch("nodes", name, {"spec": {"taints": None}})
        self._api.patch("nodes", name, {"status": self._node_status()}, subresource="status")

    def _node_status(self) -> Json:
        settings, now = self._settings, format_timestamp(utc_now())
        size = {
            "cpu": str(settings.cpus),
            "memory": settings.memory,
            "pods": "250",
            "ephemeral-storage": "100Gi",
            "nvidia.com/gpu": str(settings.gpus),
        }
        kinds = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
        times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
        unknown = ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "kubeProxyVersion")
        return {
            "capacity": size,
            "allocatable": size,
            "conditions": [
                {"type": kind, "status": str(kind == "Ready"), "reason": "ProcessKubelet", **times} for kind in kinds
            ],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": settings.port}},
            "nodeInfo": {
                "kubeletVersion": "v0.0.0-process",
                "containerRuntimeVersion": "process://1",
                "operatingSystem": "linux",
                "architecture": "amd64",
                **dict.fromkeys(unknown, ""),
            },
        }

    # -- pods -----------------------------------------------------------------------------------------------------

    def _on_pod(self, event_type: str, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        with self._lock:
            if self._stopping:
                return
            known = self._pods.get(uid)
            worker = known
            if worker is None and event_type != "DELETED":
                worker = self._pods[uid] = PodWorker(self._node, pod)
        if worker is None:
            return
        if event_type == "DELETED":
            worker.abort()
            threading.Thread(target=self._clean_up, args=(uid, worker), daemon=True).start()
        elif "deletionTimestamp" in pod["metadata"]:
            self._delete_pod(worker, pod)
        elif known is None:
            worker.start()
        else:
            worker.status_writer.merge_conditions(pod)
            worker.update(pod)
            if fault := (pod["metadata"].get("annotations") or {}).get(FAULT_ANNOTATION):
                worker.inject_fault(fault)

    def _refresh_volumes(self) -> None:
        """Refresh the volumes of all pods, as the kubelet's periodic sync of a pod does."""
        while not self._stopped.wait(_REFRESH_SECONDS):
            with self._lock:
                pods = list(self._pods.values())
            for pod in pods:
                pod.refresh_volumes()

    def _delete_pod(self, worker: PodWorker, pod: Json) -> None:
        worker.pod["metadata"].update(pod["metadata"])
        worker.status_writer.merge_conditions(pod)
        worker.delete(pod["metadata"].get("deletionGracePeriodSeconds", 30))

    def _clean_up(self, uid: str, worker: PodWorker) -> None:
        worker.join()
        with self._lock:
            self._pods.pop(uid, None)
        with contextlib.suppress(OSError):
            shutil.rmtree(self._settings.pod_folder(uid), ignore_errors=True)
