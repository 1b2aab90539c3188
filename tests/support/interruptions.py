"""Evictions of the running pods of a step's TrainJobs on a laptop cluster."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator
from typing import Any

from tests.support.polling import wait_until
from trainjob.client import Cluster
from trainjob_local.kubelet.kubelet import FAULT_ANNOTATION


def evict(cluster: Cluster, selector: str, *, namespace: str = "default", earlier: Collection[str] = ()) -> str:
    """Wait for a running pod of a TrainJob, evict it, and return the UID of the TrainJob.

    Args:
        cluster: client of the laptop cluster.
        selector: label selector of the step's TrainJobs.
        namespace: namespace of the TrainJobs.
        earlier: UIDs of TrainJobs whose pods were evicted before.
    """
    uid, pod_name = wait_until(lambda: _find_running(cluster, selector, namespace, earlier))
    _evict_pod(cluster, namespace, pod_name)
    return uid


def end_running_pod(cluster: Cluster, selector: str, fault: str, *, namespace: str = "default") -> None:
    """Wait for a running pod of a TrainJob, and inject a fault, such as `OOMKilled`."""
    _, pod_name = wait_until(lambda: _find_running(cluster, selector, namespace, ()))
    _inject_fault(cluster, namespace, pod_name, fault)


def _evict_pod(cluster: Cluster, namespace: str, pod_name: str) -> None:
    _inject_fault(cluster, namespace, pod_name, "Evicted")


def _inject_fault(cluster: Cluster, namespace: str, pod_name: str, fault: str) -> None:
    body = {"metadata": {"annotations": {FAULT_ANNOTATION: fault}}}
    cluster._http.request("PATCH", f"/api/v1/namespaces/{namespace}/pods/{pod_name}", doing="end a pod", body=body)


def _find_running(cluster: Cluster, selector: str, namespace: str, earlier: Collection[str]) -> tuple[str, str] | None:
    """Return the UID of a TrainJob that is not in `earlier`, and the name of its running pod."""
    for job in cluster.list_trainjobs(namespace, selector):
        uid, created = job["metadata"]["uid"], job["metadata"]["creationTimestamp"]
        for pod in cluster.list_pods(job["metadata"]["name"], namespace) if uid not in earlier else ():
            if _is_running(pod) and pod["metadata"]["creationTimestamp"] >= created:
                return uid, pod["metadata"]["name"]
    return None


def _is_running(pod: dict[str, Any]) -> bool:
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


@contextlib.contextmanager
def evictions(
    cluster: Cluster,
    selector: str,
    times: int,
    *,
    namespace: str = "default",
    then: Callable[[], object] | None = None,
) -> Iterator[list[str]]:
    """Evict the pods of the step's next TrainJobs in the background, each TrainJob once.

    Yields the UIDs of the interrupted TrainJobs. At the end of the context, all of them must have been interrupted.

    Args:
        cluster: client of the laptop cluster.
        selector: label selector of the step's TrainJobs.
        times: number of TrainJobs to interrupt.
        namespace: namespace of the TrainJobs.
        then: called when a pod of the attempt after the last eviction runs, for example to let it end.
    """
    interrupted: list[str] = []
    stopped = threading.Event()

    def wait_for_pod() -> tuple[str, str] | None:
        """Return the next TrainJob and its running pod; None after the end of the context.

        There is no deadline of its own: on a busy machine, an engine may need more than a minute to start.
        """
        while not stopped.wait(0.05):
            if found := _find_running(cluster, selector, namespace, interrupted):
                return found
        return None

    def run() -> None:
        while len(interrupted) < times and (found := wait_for_pod()):
            _evict_pod(cluster, namespace, found[1])
            interrupted.append(found[0])
        if then and wait_for_pod():
            then()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield interrupted
    finally:
        stopped.set()
        thread.join()
    assert len(interrupted) == times
