"""Deletion of a pod of which its kubelet learns at the moment at which the pod ends."""

from __future__ import annotations

import threading

from tests.support.polling import wait_until
from trainjob_local.apiserver import Registry
from trainjob_local.kubelet.kubelet import Kubelet
from trainjob_local.kubelet.master_ports import MasterPorts
from trainjob_local.kubelet.settings import KubeletSettings
from trainjob_local.registry_api import RegistryApi


def pod_that_waits_for(path):
    """Return a pod that ends when a file exists."""
    command = ["sh", "-c", f"until [ -e {path} ]; do sleep 0.05; done"]
    container = {"name": "main", "image": "busybox", "command": command}
    spec = {"nodeName": "node", "restartPolicy": "Never", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "short", "namespace": "default"}, "spec": spec}


def test_a_pod_that_is_deleted_while_it_ends_is_removed(tmp_path, monkeypatch):
    """The event of the deletion arrives after the last status of the pod, and before the end of its thread."""
    has_ended, go_on = threading.Event(), threading.Event()
    release, on_pod = MasterPorts.release, Kubelet._on_pod

    def wait_and_release(ports, pod):
        has_ended.set()
        go_on.wait()
        release(ports, pod)

    def delay_deletion(kubelet, event_type, pod):
        if "deletionTimestamp" in pod["metadata"]:
            has_ended.wait()
        on_pod(kubelet, event_type, pod)

    monkeypatch.setattr(MasterPorts, "release", wait_and_release)
    monkeypatch.setattr(Kubelet, "_on_pod", delay_deletion)
    registry = Registry()
    api = RegistryApi(registry, lambda: "127.0.0.1:0")
    kubelet = Kubelet(api, KubeletSettings(state=tmp_path / "state", node="node"))
    kubelet.start()
    try:
        uid = api.create("pods", pod_that_waits_for(tmp_path / "end"), "default")["metadata"]["uid"]
        wait_until(lambda: registry.get("pods", "short", "default").get("status", {}).get("phase") == "Running")
        worker = kubelet.find_pod(("default", "short"))
        api.delete("pods", "short", "default", uid=uid, grace=30)
        (tmp_path / "end").touch()
        wait_until(lambda: "deletionTimestamp" in worker.pod["metadata"])
        go_on.set()
        wait_until(lambda: not registry.list("pods", "default"))
    finally:
        has_ended.set()
        go_on.set()
        kubelet.stop()
        registry.close()
