"""The laptop cluster's API server without controllers and kubelet.

A test sets the status of its objects itself.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import urllib3

from tests.support.counting_server import TOKEN, CountingServer
from trainjob import CustomTrainerContainer, RunKey, TrainJob
from trainjob.manifest import build_trainjob, labels
from trainjob_local.apiserver import Registry
from trainjob_local.runtimes import stock_runtimes


class BareApiServer:
    """An API server, with methods that write objects and their status.

    Attributes:
        server: the server, which counts its requests.
        kubeconfig: path of a kubeconfig for it.
    """

    def __init__(self, server: CountingServer, kubeconfig: Path) -> None:
        self.server, self.kubeconfig = server, kubeconfig
        self._registry = server._registry

    def create_namespace(self, name: str) -> None:
        """Create a namespace."""
        self._registry.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def create_trainjob(
        self, name: str, key: RunKey | None = None, *, queue: str = "", nodes: int = 1, namespace: str = "default"
    ) -> dict[str, Any]:
        """Create a TrainJob."""
        trainer = CustomTrainerContainer(image="x", command=["y"], num_nodes=nodes)
        job = TrainJob(trainer=trainer, queue=queue or None)
        run_labels = labels.run_labels(key.to_dict(), key.digest, 1) if key else {}
        annotations = {labels.RUN_KEY: key.canonical} if key else {}
        body = build_trainjob(job, name=name, namespace=namespace, labels=run_labels, annotations=annotations)
        return self.create_object("trainjobs", body)

    def create_object(self, plural: str, body: dict[str, Any]) -> dict[str, Any]:
        """Create an object in its namespace."""
        return self._registry.create(plural, body, body["metadata"]["namespace"])

    def create_runtime(self, name: str) -> None:
        """Create a copy of the runtime `torch-distributed`."""
        [found] = [one for one in stock_runtimes() if one["metadata"]["name"] == "torch-distributed"]
        self._registry.create("clustertrainingruntimes", {**found, "metadata": {**found["metadata"], "name": name}})

    def set_running(self, name: str, **counts: int) -> None:
        """Report the Jobs of a TrainJob as active."""
        none = dict.fromkeys(("active", "ready", "succeeded", "failed", "suspended"), 0)
        self.set_status(name, {"jobsStatus": [{"name": "node", **none, **(counts or {"active": 1, "ready": 1})}]})

    def set_finished(self, name: str, condition_type: str = "Complete", message: str = "all jobs are done") -> None:
        """Add the condition that ends a TrainJob."""
        reason = {"Complete": "JobsCompleted", "Failed": "FailedJobs"}.get(condition_type, condition_type)
        when = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")  # an earlier time is the end of another JobSet
        condition = {
            "type": condition_type,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": when,
        }
        self.set_status(name, {"conditions": [condition]})

    def set_status(self, name: str, status: dict[str, Any]) -> None:
        """Write the status of a TrainJob."""
        self._registry.patch("trainjobs", name, {"status": status}, "default", subresource="status")

    def create_restricted_kubeconfig(self, *resources: str) -> Path:
        """Create a service account with read access to TrainJobs and these resources.

        The function returns its kubeconfig.
        """
        meta, group = {"name": "reader"}, "rbac.authorization.k8s.io"
        rule = {"apiGroups": ["*"], "resources": ["trainjobs", *resources], "verbs": ["get", "list"]}
        subject = {"kind": "ServiceAccount", "name": "reader", "namespace": "default"}
        binding = {"roleRef": {"apiGroup": group, "kind": "Role", "name": "reader"}, "subjects": [subject]}
        for plural, version, kind, more in (
            ("serviceaccounts", "v1", "ServiceAccount", {}),
            ("roles", f"{group}/v1", "Role", {"rules": [rule]}),
            ("rolebindings", f"{group}/v1", "RoleBinding", binding),
        ):
            self._registry.create(plural, {"apiVersion": version, "kind": kind, "metadata": meta, **more}, "default")
        token_request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token_path = "/api/v1/namespaces/default/serviceaccounts/reader/token"
        response = urllib3.request(
            "POST", f"{self.server.url}{token_path}", json=token_request, headers={"Authorization": f"Bearer {TOKEN}"}
        )
        path = self.kubeconfig.with_name("kubeconfig-of-reader")
        path.write_text(json.dumps(_kubeconfig(self.server.url, response.json()["status"]["token"])))
        return path

    def delete(self, name: str) -> None:
        """Delete a TrainJob."""
        self._registry.delete("trainjobs", name, "default")


@contextlib.contextmanager
def bare_apiserver(folder: Path) -> Iterator[BareApiServer]:
    """Run an API server until the block ends; its kubeconfig is in the folder."""
    registry = Registry()
    server = CountingServer(registry)
    server.start()
    try:
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(json.dumps(_kubeconfig(server.url)))
        yield BareApiServer(server, kubeconfig)
    finally:
        server.stop()
        registry.close()


def _kubeconfig(url: str, token: str = TOKEN) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "alone", "cluster": {"server": url}}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "alone", "context": {"cluster": "alone", "user": "admin"}}],
        "current-context": "alone",
    }


def make_run_key(task: str, engine: str = "airflow", run: str = "run-1") -> RunKey:
    """Return the key of a run."""
    return RunKey(engine, "nightly", task, run)
