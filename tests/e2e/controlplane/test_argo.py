"""A step on the real Argo: pods of the compiled component that Argo creates, signals, loses and creates again.

Argo's controller and executor are those of Kubeflow Pipelines 2.17, with the settings of its manifests and a driver's
pod before each step. The launcher gets its cluster and its permissions as in production, from its service account and
manifests/kfp.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest

from control_plane import ControlPlane
from process_kubelet.isolation import first_process
from tests.e2e.controlplane import kfp_workflow
from tests.e2e.controlplane.kfp_runs import (
    EXIT_STATUS,
    NAMESPACE,
    SECONDS,
    TRAINING,
    PipelineRun,
    pipelines_plane,
    run_id,
    terminate,
    wait_command,
)
from tests.e2e.controlplane.kfp_workflow import Task
from tests.support.polling import wait_until

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def runs(request, tmp_path_factory) -> Iterator[dict[str, PipelineRun]]:
    """Start the runs that the selected cases need, side by side on one control plane."""
    if reason := ControlPlane.unavailable_reason(argo=True):
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("argo")
    cases = [item.callspec.params for item in request.session.items if item.module is request.module]
    names = [name for name in RUNS if {"run": name} in cases]
    calls = [("train", {**TRAINING, "command": wait_command(name), "on_kill": RUNS[name]}) for name in names]
    *trainings, cleanup = kfp_workflow.compile_calls([*calls, ("cleanup", {"status": EXIT_STATUS})], folder)
    with pipelines_plane(folder / "state") as (plane, client):
        for name, call in zip(names, trainings, strict=True):
            exit_task = Task("cleanup", cleanup) if name in HANDLED else None
            workflow = kfp_workflow.workflow(
                name, Task("train", call), run=run_id(name), on_exit=exit_task, ttl_seconds_after_failure=TTL.get(name)
            )
            client.create(workflow, NAMESPACE)
        yield {name: PipelineRun(name, client, plane) for name in names}


@pytest.fixture
def run(request, runs) -> PipelineRun:
    """Return the run that a case names with `of_run`."""
    return runs[request.param]


def of_run(name: str) -> pytest.MarkDecorator:
    """Return the mark that gives a case the run of this name."""
    return pytest.mark.parametrize("run", [name], indirect=True)


RUNS = {
    "complete": "delete",
    "terminated": "delete",
    "retried": "delete",
    "lost": "delete",
    "signalled": "keep",
    "unscheduled": "keep",
    "abandoned": "keep_on_drain",
}
"""The runs, and the action of their launchers on the TrainJob after a signal."""

HANDLED = ("signalled", "unscheduled", "abandoned")
"""The runs that have `cleanup` as exit task."""

TTL = {"abandoned": 5}
"""Seconds after which Argo deletes the failed Workflow of a run; an hour for the others."""


def first_try_node(run: PipelineRun) -> str:
    """Return Argo's name of the first try of the step.

    Argo retries each template, so each one is a node of its own.
    """
    return f"{run.name}(0).root(0).train(0).executor(0)"


@of_run("complete")
def test_a_step_succeeds(run):
    running = run.wait_for_training()
    assert [owner["name"] for owner in running["metadata"]["ownerReferences"]] == [run.name]
    run.finish_training()
    run.wait_for_phase("Succeeded")
    (job,) = run.list_trainjobs()
    assert "ownerReferences" not in job["metadata"]  # the record stays
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


RECENTLY_STARTED_SECONDS = 12
"""Argo 4.0 creates a pod again, without another try, if it is lost within 10 s of its start."""


@of_run("retried")
def test_a_retry_adopts(run):
    """If Argo knows the outputs of a lost pod, it reports an error, and KFP 2.17 retries."""
    job = run.wait_for_training()
    run.wait_for_running(first_try_node(run))
    wait_until(lambda: get_age(run, first_try_node(run)) > RECENTLY_STARTED_SECONDS, SECONDS)
    with lose_node(run):
        (wait,) = run.list_container_pids(first_try_node(run), "wait")
        os.kill(first_process(wait), signal.SIGTERM)
        wait_until(lambda: are_outputs_reported(run), SECONDS)
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
        (main,) = run.list_container_pids(first_try_node(run), "main")
        os.kill(main, signal.SIGKILL)
        run.client.delete("Pod", NAMESPACE, pod)  # as the taint manager does
        yield
        run.client.delete("Pod", NAMESPACE, pod, gracePeriodSeconds=0)  # as an administrator does in the end
    finally:
        os.kill(kubelet, signal.SIGCONT)


def get_age(run: PipelineRun, node: str) -> float:
    """Return the seconds since Argo started a node."""
    started = datetime.fromisoformat(run.list_nodes()[node]["startedAt"].replace("Z", "+00:00"))
    return (datetime.now(timezone.utc) - started).total_seconds()


def are_outputs_reported(run: PipelineRun) -> bool:
    """Return whether Argo's executor has reported all outputs of the launcher's pod.

    The drivers' pods have reported theirs before.
    """
    path = f"/apis/argoproj.io/v1alpha1/namespaces/{NAMESPACE}/workflowtaskresults"
    node = run.list_nodes()[first_try_node(run)]["id"]
    answer = run.client.request("GET", path, labelSelector=f"workflows.argoproj.io/workflow={run.name}")
    labels = {one["metadata"]["name"]: one["metadata"]["labels"] for one in answer.body["items"]}
    return labels.get(node, {}).get("workflows.argoproj.io/report-outputs-completed") == "true"


def handled_node(run: PipelineRun) -> str:
    """Return Argo's name of the first try of the step in an exit handler."""
    return f"{run.name}(0).root(0).exit-handler-1(0).train(0).executor(0)"


@of_run("signalled")
def test_keep_outlives_its_step_and_cleanup_deletes_it(run):
    """A signal without a termination keeps the TrainJob; the exit task deletes it at the end of the run."""
    job = run.wait_for_training()
    run.wait_for_running(handled_node(run))
    (main,) = run.list_container_pids(handled_node(run), "main")
    os.kill(first_process(main), signal.SIGTERM)
    run.wait_for_phase("Failed")
    (hook,) = (name for name in run.list_launcher_pods() if ".onExit" in name)
    assert run.executor_output(hook)["parameterValues"] == {"deleted": [job["metadata"]["name"]]}
    assert run.list_trainjobs() == []


@of_run("unscheduled")
def test_keep_is_deleted_at_a_termination_without_the_exit_task(run):
    """With `keep` and an exit task, the launcher deletes its TrainJob itself if the run is terminated."""
    job = run.wait_for_training()
    run.wait_for_running(handled_node(run))
    with stopped_scheduler(run):
        terminate(run)
        run.client.wait_until_deleted("TrainJob", NAMESPACE, job["metadata"]["name"], seconds=SECONDS)
        run.wait_for_phase("Failed")
    assert list_stopped_exit_nodes(run)


@of_run("abandoned")
def test_the_owner_deletes_what_neither_launcher_nor_exit_task_deletes(run):
    """Argo stops the exit task, and the launcher is killed: the TrainJob is deleted with the run's Workflow."""
    job = run.wait_for_training()
    run.wait_for_running(handled_node(run))
    assert [owner["name"] for owner in job["metadata"]["ownerReferences"]] == [run.name]
    with stopped_scheduler(run):
        (main,) = run.list_container_pids(handled_node(run), "main")
        os.kill(main, signal.SIGKILL)
        terminate(run)
        run.wait_for_phase("Failed")
        assert list_stopped_exit_nodes(run)
        assert [one["metadata"]["uid"] for one in run.list_trainjobs()] == [job["metadata"]["uid"]]
    run.client.wait_until_deleted("Workflow", NAMESPACE, run.name, seconds=SECONDS)
    run.client.wait_until_deleted("TrainJob", NAMESPACE, job["metadata"]["name"], seconds=SECONDS)


def list_stopped_exit_nodes(run: PipelineRun) -> list[str]:
    """Return Argo's nodes of the exit task that it ended because of the termination."""
    return [
        name
        for name, node in run.list_nodes().items()
        if ".onExit" in name and node["type"] == "Pod" and node.get("message") == "Step exceeded its deadline"
    ]


@contextlib.contextmanager
def stopped_scheduler(run: PipelineRun) -> Iterator[None]:
    """Stop the scheduler, so that new pods stay Pending, as while a cluster has no free node."""
    scheduler = run.control_plane.info["pids"]["scheduler"]
    os.kill(scheduler, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(scheduler, signal.SIGCONT)
