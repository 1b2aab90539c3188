"""Runs of pipelines on a control plane with Argo, as Kubeflow Pipelines starts, terminates and retries them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from control_plane import ControlPlane
from tests.e2e.controlplane import kfp_workflow
from tests.support import shipped_manifests
from tests.support.accounts import create_account, grant
from tests.support.kubernetes_client import Client, path_of
from tests.support.polling import wait_until

NAMESPACE = "default"
SECONDS = 150.0  # Argo checks a workflow every 10 s
ACCOUNT = "pipeline-runner"
ARGO_RULES = [{"apiGroups": ["argoproj.io"], "resources": ["workflowtaskresults"], "verbs": ["create", "patch"]}]


@dataclass(frozen=True)
class PipelineRun:
    """A run of a pipeline, whose training runs until the test finishes it."""

    name: str
    client: Client
    control_plane: ControlPlane

    def finish_training(self) -> None:
        """Let the training end."""
        (shared_folder(self.control_plane) / self.name).touch()

    def executor_output(self, node: str) -> dict[str, Any]:
        """Return the executor output of this node for KFP."""
        uid = self.list_launcher_pods()[node]["metadata"]["uid"]
        found: dict[str, Any] = json.loads((shared_folder(self.control_plane) / f"{uid}.json").read_text())
        return found

    def get_workflow(self) -> dict[str, Any]:
        return self.client.get("Workflow", NAMESPACE, self.name)

    def list_nodes(self) -> dict[str, dict[str, Any]]:
        """Return Argo's nodes by name."""
        return {node["name"]: node for node in self.get_workflow().get("status", {}).get("nodes", {}).values()}

    def wait_for_phase(self, *phases: str) -> dict[str, Any]:
        def reached(workflow: dict[str, Any]) -> bool:
            return workflow.get("status", {}).get("phase") in phases

        return self.client.wait_for("Workflow", NAMESPACE, self.name, reached, seconds=SECONDS)

    def wait_for_running(self, node: str) -> None:
        """Wait until Argo has seen this node's pod run."""

        def is_running(workflow: dict[str, Any]) -> bool:
            nodes = workflow.get("status", {}).get("nodes", {}).values()
            return any(one["name"] == node and one["phase"] == "Running" for one in nodes)

        self.client.wait_for("Workflow", NAMESPACE, self.name, is_running, seconds=SECONDS)

    def wait_for_training(self) -> dict[str, Any]:
        """Wait until the TrainJob's pod runs, and return the TrainJob."""

        def is_ready(job: dict[str, Any]) -> bool:
            return any(one["ready"] for one in job.get("status", {}).get("jobsStatus", []))

        return self.client.wait_for("TrainJob", NAMESPACE, "", is_ready, seconds=SECONDS, labelSelector=self._label)

    def list_trainjobs(self) -> list[dict[str, Any]]:
        return self.client.list("TrainJob", NAMESPACE, labelSelector=self._label)

    def list_launcher_pods(self) -> dict[str, dict[str, Any]]:
        """Return the launchers' pods by Argo's names of their nodes, without the drivers' pods."""
        found = self.client.list("Pod", NAMESPACE, labelSelector=f"workflows.argoproj.io/workflow={self.name}")
        named = {pod["metadata"]["annotations"]["workflows.argoproj.io/node-name"]: pod for pod in found}
        return {name: pod for name, pod in named.items() if ".executor" in name}

    def list_container_pids(self, node: str, container: str) -> list[int]:
        """Return the PIDs that the kubelet started for a container of this node's launcher.

        The whole container ends with them.
        """
        pod = self.list_launcher_pods().get(node) or {}
        statuses = pod.get("status", {}).get("containerStatuses", [])
        found = [one["containerID"] for one in statuses if one["name"] == container and "running" in one["state"]]
        return [int(one.removeprefix("process://")) for one in found]

    def read_log(self, node: str) -> str:
        """Return the log of this node's launcher; empty if it has not started."""
        if (pod := self.list_launcher_pods().get(node)) is None:
            return ""
        answer = self.client.request("GET", path_of("Pod", NAMESPACE, pod["metadata"]["name"], "log"), container="main")
        return str(answer.body) if answer.ok else ""

    @property
    def _label(self) -> str:
        return f"trainjob.dev/run={run_id(self.name)}"


def wait_command(name: str) -> list[str]:
    """Return a command that waits until the run is finished.

    It handles SIGTERM, because the kernel ignores the signal for a process 1 without a handler.
    """
    return ["sh", "-c", f"trap 'exit 143' TERM; until [ -e /workspace/{name} ]; do sleep 0.1; done; echo trained"]


def run_id(name: str) -> str:
    return f"run-of-{name}"


def shared_folder(control_plane: ControlPlane) -> Path:
    """Return the folder that trainings see as their workspace."""
    return control_plane.state / "shared"


@contextlib.contextmanager
def pipelines_plane(state: Path) -> Iterator[tuple[ControlPlane, Client]]:
    """Start a control plane with Argo, and yield it with an administrator's client.

    Argo has the settings of KFP 2.17's manifests.
    """
    with contextlib.ExitStack() as stack:
        plane = stack.enter_context(ControlPlane(state, argo=True))
        client = stack.enter_context(contextlib.closing(Client.from_kubeconfig(str(plane.kubeconfig))))
        set_workflow_defaults(client, plane)
        create_account_and_claim(client, plane)
        yield plane, client


def set_workflow_defaults(client: Client, control_plane: ControlPlane) -> None:
    """Set KFP's defaults for Workflows, and wait until Argo's controller uses them.

    Argo 4.0 reads its settings once at its start, once when its watch reports the ConfigMap, and after each change.
    """
    log = control_plane.state / "logs" / "argo.log"

    def has_read_settings(times: int) -> bool:
        return log.read_text(errors="replace").count("Configuration updated") >= times

    wait_until(lambda: has_read_settings(2))
    change = {"data": {"workflowDefaults": kfp_workflow.WORKFLOW_DEFAULTS}}
    client.patch("ConfigMap", "argo", "workflow-controller-configmap", change)
    wait_until(lambda: has_read_settings(3))


def create_account_and_claim(client: Client, control_plane: ControlPlane) -> None:
    """Create the service account of pipeline runs, and their claim."""
    create_account(client, NAMESPACE, ACCOUNT)
    shipped_manifests.apply_roles(client, NAMESPACE, "kfp", ACCOUNT)
    grant(client, NAMESPACE, ARGO_RULES, ACCOUNT)
    shared_folder(control_plane).mkdir()
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "shared"},
        "spec": {
            **_CLAIM_SPEC,
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": str(shared_folder(control_plane))},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": kfp_workflow.OUTPUTS_CLAIM},
        "spec": {**_CLAIM_SPEC, "volumeName": "shared", "resources": {"requests": {"storage": "1Gi"}}},
    }
    answer = client.request("POST", "/api/v1/persistentvolumes", volume)
    assert answer.ok, answer.message
    client.create(claim, NAMESPACE)


_CLAIM_SPEC = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}


def terminate(run: PipelineRun) -> None:
    """Terminate a run as KFP's API server does.

    Source: backend/src/apiserver/resource/resource_manager.go, TerminateWorkflow.
    """
    run.client.patch("Workflow", NAMESPACE, run.name, {"spec": {"activeDeadlineSeconds": 0}})


TRAINING = {"image": "busybox", "workspace": "shared"}

EXIT_STATUS = {"state": "FAILED", "pipelineTaskName": "exit-handler-1", "pipelineJobResourceName": "run", "error": {}}
"""The status that an exit task gets (backend/src/v2/driver/resolve.go)."""
