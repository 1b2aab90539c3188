"""A step on the real Argo: pods of the compiled component that Argo creates, signals, loses and creates again.

Argo's controller and executor are those of Kubeflow Pipelines 2.17. The launcher gets its cluster and its permissions
as in production, from its service account and manifests/kfp.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from control_plane import ControlPlane
from process_kubelet.isolation import first_process
from tests.e2e.controlplane import kfp_workflow
from tests.e2e.controlplane.kfp_workflow import Task
from tests.support import shipped_manifests
from tests.support.accounts import create_account, grant
from tests.support.kubernetes_client import Client, path_of
from tests.support.polling import wait_until

pytestmark = pytest.mark.timeout(400)

NAMESPACE = "default"
SECONDS = 150.0  # Argo checks a workflow every 10 s
ACCOUNT = "pipeline-runner"
ARGO_RULES = [{"apiGroups": ["argoproj.io"], "resources": ["workflowtaskresults"], "verbs": ["create", "patch"]}]


@dataclass(frozen=True)
class PipelineRun:
    """One run of a pipeline, whose training runs until the test finishes it."""

    name: str
    client: Client
    control_plane: ControlPlane

    def finish_training(self) -> None:
        """Let the training end."""
        (shared_folder(self.control_plane) / self.name).touch()

    def executor_output(self, node: str) -> dict[str, Any]:
        """Return the executor output of this node for KFP."""
        uid = self.list_launcher_pods()[node]["metadata"]["uid"]
        volume = self.control_plane.state / "kubelet" / "pods" / uid / "volumes" / kfp_workflow.SCRATCH_VOLUME
        return json.loads((volume / "executor_output.json").read_text())

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
        """Return the launchers' pods by Argo's names of their nodes."""
        found = self.client.list("Pod", NAMESPACE, labelSelector=f"workflows.argoproj.io/workflow={self.name}")
        return {pod["metadata"]["annotations"]["workflows.argoproj.io/node-name"]: pod for pod in found}

    def read_log(self, node: str) -> str:
        """Return the log of this node's launcher; empty if it has not started."""
        if (pod := self.list_launcher_pods().get(node)) is None:
            return ""
        answer = self.client.request("GET", path_of("Pod", NAMESPACE, pod["metadata"]["name"], "log"), container="main")
        return str(answer.body) if answer.ok else ""

    @property
    def _label(self) -> str:
        return f"trainjob.dev/run={run_id(self.name)}"


@pytest.fixture(scope="module")
def runs(request, tmp_path_factory) -> Iterator[dict[str, PipelineRun]]:
    """Start the runs that the selected cases need, side by side on one control plane."""
    if reason := ControlPlane.unavailable_reason(argo=True):
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("argo")
    cases = [item.callspec.params for item in request.session.items if item.module is request.module]
    names = [name for name in RUNS if {"run": name} in cases]
    calls = [("train", {**TRAINING, "command": wait_command(name), "on_kill": RUNS[name]}) for name in names]
    *trainings, cleanup = kfp_workflow.compile_commands([*calls, ("cleanup", {"status": EXIT_STATUS})], folder)
    with contextlib.ExitStack() as stack:
        plane = stack.enter_context(ControlPlane(folder / "state", argo=True))
        client = stack.enter_context(contextlib.closing(Client.from_kubeconfig(str(plane.kubeconfig))))
        create_account_and_claim(client, plane)
        for name, command in zip(names, trainings, strict=True):
            exit_task = Task("cleanup", cleanup) if name == "handled" else None
            client.create(
                kfp_workflow.workflow(name, Task("train", command), run=run_id(name), on_exit=exit_task), NAMESPACE
            )
        yield {name: PipelineRun(name, client, plane) for name in names}


@pytest.fixture
def run(request, runs) -> PipelineRun:
    """Return the run that a case names with `of_run`."""
    return runs[request.param]


def of_run(name: str) -> pytest.MarkDecorator:
    """Return the mark that gives a case the run of this name."""
    return pytest.mark.parametrize("run", [name], indirect=True)


RUNS = {"complete": "delete", "terminated": "delete", "retried": "delete", "lost": "delete", "handled": "keep"}
"""The runs, and the action of their launchers on the TrainJob after a signal."""

TRAINING = {"image": "busybox", "workspace": "shared"}

EXIT_STATUS = {
    "state": "FAILED",
    "pipelineTaskName": "exit-handler-1",
    "pipelineJobResourceName": "handled",
    "error": {},
}
"""The status that an exit task gets (backend/src/v2/driver/resolve.go)."""


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
        "metadata": {"name": "shared"},
        "spec": {**_CLAIM_SPEC, "volumeName": "shared", "resources": {"requests": {"storage": "1Gi"}}},
    }
    answer = client.request("POST", "/api/v1/persistentvolumes", volume)
    assert answer.ok, answer.message
    client.create(claim, NAMESPACE)


_CLAIM_SPEC = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}


def first_try_node(run: PipelineRun) -> str:
    """Return Argo's name of the first try of the step.

    Argo retries each template, so each one is a node of its own.
    """
    return f"{run.name}(0).root(0).train(0).executor(0)"


@of_run("complete")
def test_a_step_succeeds(run):
    run.wait_for_training()
    run.finish_training()
    run.wait_for_phase("Succeeded")
    (job,) = run.list_trainjobs()
    assert [one["type"] for one in job["status"]["conditions"] if one["status"] == "True"] == ["Complete"]
    assert (
        json.loads(job["metadata"]["annotations"]["trainjob.dev/run-key"]).items()
        >= {
            "engine": "kfp",
            "workflow": "complete",
            "run": run_id("complete"),
            "task": "train",
            "map_index": "",
        }.items()
    )
    assert list(run.list_launcher_pods()) == [first_try_node(run)]
    values = run.executor_output(first_try_node(run))["parameterValues"]
    assert (values["job"], values["uid"]) == (job["metadata"]["name"], job["metadata"]["uid"])


@pytest.mark.smoke
@of_run("terminated")
def test_terminating_a_run_deletes_its_job(run):
    job = run.wait_for_training()
    run.wait_for_running(first_try_node(run))
    terminate(run)
    run.client.wait_until_deleted("TrainJob", NAMESPACE, job["metadata"]["name"], seconds=SECONDS)
    run.wait_for_phase("Failed")
    assert run.list_nodes()[first_try_node(run)]["phase"] == "Failed"
    assert run.list_trainjobs() == []


def terminate(run: PipelineRun) -> None:
    """Terminate a run as KFP's API server does.

    Source: backend/src/apiserver/resource/resource_manager.go, TerminateWorkflow.
    """
    run.client.patch("Workflow", NAMESPACE, run.name, {"spec": {"activeDeadlineSeconds": 0}})


@of_run("retried")
def test_a_retry_adopts(run):
    """If Argo knows the outputs of a lost pod, it reports an error, and KFP 2.17 retries."""
    job = run.wait_for_training()
    run.wait_for_running(first_try_node(run))
    with lose_node(run):
        (wait,) = list_container_pids(run, "wait")
        os.kill(first_process(wait), signal.SIGTERM)
        wait_until(lambda: "true" in read_output_reports(run), SECONDS)
    second = first_try_node(run).removesuffix("(0)") + "(1)"
    wait_until(lambda: is_adopted(job, run.read_log(second)), SECONDS)
    run.finish_training()
    run.wait_for_phase("Succeeded")
    lost = run.list_nodes()[first_try_node(run)]
    assert (lost["phase"], lost["message"]) == ("Error", "pod deleted")
    assert [one["metadata"]["uid"] for one in run.list_trainjobs()] == [job["metadata"]["uid"]]


@of_run("lost")
def test_a_pod_is_lost_with_its_node(run):
    """Argo recreates a pod lost with its node under the same name, which is not another try."""
    job = run.wait_for_training()
    uid = run.list_launcher_pods()[first_try_node(run)]["metadata"]["uid"]
    with lose_node(run):
        pass
    wait_until(lambda: is_adopted(job, run.read_log(first_try_node(run))), SECONDS)
    run.finish_training()
    run.wait_for_phase("Succeeded")
    (again,) = run.list_launcher_pods().values()
    assert again["metadata"]["uid"] != uid
    assert [one["metadata"]["uid"] for one in run.list_trainjobs()] == [job["metadata"]["uid"]]


def is_adopted(job: dict[str, Any], log: str) -> bool:
    return f"adopted, uid {job['metadata']['uid']}" in log


@contextlib.contextmanager
def lose_node(run: PipelineRun) -> Iterator[None]:
    """Kill the launcher and then remove its pod, while the kubelet cannot report anything."""
    pod, kubelet = (
        run.list_launcher_pods()[first_try_node(run)]["metadata"]["name"],
        run.control_plane.info["pids"]["kubelet"],
    )
    os.kill(kubelet, signal.SIGSTOP)
    try:
        (main,) = list_container_pids(run, "main")
        os.kill(main, signal.SIGKILL)
        run.client.delete("Pod", NAMESPACE, pod)  # as the taint manager does
        yield
        run.client.delete("Pod", NAMESPACE, pod, gracePeriodSeconds=0)  # as an administrator does in the end
    finally:
        os.kill(kubelet, signal.SIGCONT)


def list_container_pids(run: PipelineRun, container: str) -> list[int]:
    """Return the PIDs that the kubelet started for this container.

    The whole container ends with them.
    """
    statuses = run.list_launcher_pods()[first_try_node(run)]["status"]["containerStatuses"]
    return [int(one["containerID"].removeprefix("process://")) for one in statuses if one["name"] == container]


def read_output_reports(run: PipelineRun) -> list[str]:
    """Return, for each report of Argo's executor, whether it has all outputs."""
    path = f"/apis/argoproj.io/v1alpha1/namespaces/{NAMESPACE}/workflowtaskresults"
    answer = run.client.request("GET", path, labelSelector=f"workflows.argoproj.io/workflow={run.name}")
    return [one["metadata"]["labels"]["workflows.argoproj.io/report-outputs-completed"] for one in answer.body["items"]]


@of_run("handled")
def test_an_exit_handler_cleans_up_after_terminate(run):
    """The launcher keeps its TrainJob, so the exit handler deletes it."""
    job = run.wait_for_training()
    terminate(run)
    run.client.wait_until_deleted("TrainJob", NAMESPACE, job["metadata"]["name"], seconds=SECONDS)
    run.wait_for_phase("Failed")
    (hook,) = (name for name in run.list_launcher_pods() if ".onExit" in name)
    assert run.list_nodes()[hook]["phase"] == "Succeeded"
    assert run.executor_output(hook)["parameterValues"] == {"deleted": [job["metadata"]["name"]]}
