"""A worker that runs one pod on a node, from its first container to its end.

Source: Kubernetes 1.36 `pkg/kubelet/pod_workers.go`, `pkg/kubelet/kubelet.go`.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from functools import partial

from trainjob.errors import ClusterError
from trainjob_local.kubelet.containers import Container
from trainjob_local.kubelet.node_context import NodeContext
from trainjob_local.kubelet.pod_inputs import MissingInput, PodInputs
from trainjob_local.kubelet.pod_status_writer import PodStatusWriter
from trainjob_local.objects import Json, utc_now

__all__ = ["PodWorker"]

_LOG = logging.getLogger(__name__)
_DEADLINE = {
    "reason": "DeadlineExceeded",
    "message": "Pod was active on the node longer than the specified deadline",
}
_EVICTED = (
    "The node was low on resource: memory. Threshold quantity: 100Mi, available: 64Mi. Container {} was using 1Gi, "
    "request is 0, has larger consumption of memory. "
)
_TEXTS = ("labels", "annotations")  # the fields of a running pod that its volumes may contain
_FINISHED = ("Succeeded", "Failed")
_RETRY_SECONDS = 1.0  # seconds until a missing volume is looked up again


class PodWorker:
    """Worker that runs one pod on its own thread and keeps the pod's status up to date.

    Attributes:
        pod: the pod's object; its metadata is updated when the pod is deleted.
        status_writer: writer of the pod's status.
    """

    def __init__(self, node: NodeContext, pod: Json) -> None:
        self.pod = pod
        self.status_writer = PodStatusWriter(node.api, pod)
        self._node, self._spec = node, pod["spec"]
        self._stop = threading.Event()
        self._lock, self._is_running = threading.Lock(), False
        self._kill_at = 0.0
        self._injected_fault = ""
        port = partial(node.master_ports.acquire, pod)
        inputs = PodInputs(node.api, pod, node.settings.pod_folder(pod["metadata"]["uid"]), port)
        self._inputs = inputs

        def containers(specs: list[Json], *, init: bool) -> list[Container]:
            return [
                Container(node, pod, spec, self.status_writer, inputs, init=init, stop=self._stop) for spec in specs
            ]

        self._init = containers(self._spec.get("initContainers") or [], init=True)
        self._main = containers(self._spec["containers"], init=False)
        self._thread = threading.Thread(target=self._run_safely, name=f"pod-{pod['metadata']['name']}", daemon=True)

    @property
    def identity(self) -> tuple[str, str]:
        """Namespace and name of the pod."""
        return self.pod["metadata"]["namespace"], self.pod["metadata"]["name"]

    def start(self) -> None:
        """Start the pod, or resume it after a restart of the kubelet.

        A finished pod is not changed.
        """
        if self.status_writer.phase not in _FINISHED:
            self._is_running = True
            self._thread.start()

    def join(self, seconds: float | None = None) -> None:
        """Wait for the end of the pod, at most for this number of seconds."""
        if self._thread.is_alive():
            self._thread.join(seconds)

    def container(self, name: str) -> Container | None:
        """Return the container with a name, or None if it does not exist."""
        return next((one for one in (*self._init, *self._main) if one.name == name), None)

    def end(self, grace: float) -> None:
        """End the pod: SIGTERM now, SIGKILL after the grace period.

        A second call has an effect only if it shortens the grace period.

        Args:
            grace: grace period in seconds.
        """
        kill_at = time.monotonic() + grace
        if self._stop.is_set() and kill_at >= self._kill_at:
            return
        self._kill_at = kill_at
        self._stop.set()
        self._signal(signal.SIGTERM)
        threading.Thread(target=self._kill_after, args=(grace,), daemon=True).start()

    def delete(self, grace: float) -> None:
        """Delete the pod's object, after the end of the pod if it runs.

        Args:
            grace: grace period in seconds.
        """
        with self._lock:
            if is_running := self._is_running:
                self.end(grace)
        if not is_running:
            self._delete_object()

    def update(self, pod: Json) -> None:
        """Store the labels and annotations of the changed pod; refresh its volumes if they differ."""
        own, new = self.pod["metadata"], pod["metadata"]
        if all(own.get(kind) == new.get(kind) for kind in _TEXTS):
            return
        own.update({kind: new.get(kind) for kind in _TEXTS})
        threading.Thread(target=self.refresh_volumes, daemon=True).start()

    def refresh_volumes(self) -> None:
        """Replace the files of the volumes that have changed."""
        self._inputs.refresh_volumes(self._spec.get("volumes") or [])

    def inject_fault(self, fault: str) -> None:
        """Inject the fault that the pod's annotation names, each fault once.

        Args:
            fault: `OOMKilled` or `Evicted`.
        """
        if fault == self._injected_fault or self._stop.is_set():
            return
        self._injected_fault = fault
        if fault == "OOMKilled":
            for container in self._main:
                container.kill_out_of_memory()
        elif fault == "Evicted":
            message = _EVICTED.format(self._spec["containers"][0]["name"])
            self._node.events.record(self.pod, "pods", "Warning", "Evicted", message)
            self.status_writer.mark_evicted("Evicted", message, utc_now())
            self.end(0)

    def abort(self) -> None:
        """End the pod immediately, without status updates, because its object was deleted."""
        self.status_writer.deleted = True
        self.end(0)

    def _delete_object(self) -> None:
        """Delete the pod's object, which is removed as soon as its finalizers allow it."""
        meta = self.pod["metadata"]
        try:
            self._node.api.delete("pods", meta["name"], meta["namespace"], uid=meta["uid"], grace=0)
        except ClusterError as error:
            if error.status not in (404, 409):
                raise

    # -- steps of the run -----------------------------------------------------------------------------------------

    def _run_safely(self) -> None:
        timer = self._start_deadline_timer()
        try:
            self._run()
        except Exception:  # noqa: BLE001 - an error of one pod must not end the kubelet
            _LOG.exception("running pod %s/%s failed", *self.identity)
        finally:
            self._is_running = False
            self._node.master_ports.release(self.pod)
            if timer is not None:
                timer.cancel()

    def _run(self) -> None:
        self.status_writer.push()
        ready = self._mount()
        for container in self._init:
            ready = ready and container.run() == 0
        ran = ready and not self._stop.is_set()
        succeeded = self._run_main() if ran else False
        self._inputs.remove_volumes()  # before the pod's end is visible
        self.status_writer.phase = "Succeeded" if succeeded and not self.status_writer.failure else "Failed"
        self.status_writer.push()
        with self._lock:  # a deletion is requested before this moment, or `delete` finds that the pod has ended
            self._is_running = False
            is_deleted = "deletionTimestamp" in self.pod["metadata"] or not self.status_writer.failure
            must_delete = self._stop.is_set() and is_deleted
        if must_delete and not self.status_writer.deleted:
            self._delete_object()

    def _run_main(self) -> bool:
        codes: list[int] = []
        threads = [threading.Thread(target=lambda one=one: codes.append(one.run()), daemon=True) for one in self._main]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return not any(codes)

    def _mount(self) -> bool:
        """Wait until all volumes exist; return False if the pod has to end first."""
        while not self._stop.is_set():
            try:
                mounts = {
                    volume["name"]: self._inputs.prepare_volume(volume)
                    for volume in self._spec.get("volumes") or []
                    if "image" not in volume  # Kubernetes 1.34 drops such volumes and their mounts (pkg/api/pod)
                }
            except (MissingInput, ClusterError) as error:
                self._node.events.record(
                    self.pod, "pods", "Warning", "FailedMount", f"MountVolume.SetUp failed: {error}"
                )
                self._stop.wait(_RETRY_SECONDS)
                continue
            for container in (*self._init, *self._main):
                container.volume_folders = mounts
            self.status_writer.volumes_mounted = True
            return True
        return False

    def _start_deadline_timer(self) -> threading.Timer | None:
        limit = self._spec.get("activeDeadlineSeconds")
        if not limit:
            return None
        timer = threading.Timer(limit, self._expire)
        timer.daemon = True
        timer.start()
        return timer

    def _expire(self) -> None:
        if not self._stop.is_set():
            self.status_writer.failure = dict(_DEADLINE)
            self.end(self._spec.get("terminationGracePeriodSeconds", 30))

    def _kill_after(self, grace: float) -> None:
        self.join(max(0.0, grace))
        with contextlib.suppress(RuntimeError):
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        for container in (*self._init, *self._main):
            container.signal(number)
