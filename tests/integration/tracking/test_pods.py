"""Tracked trainings in pods of the laptop cluster: SIGKILL, a later attempt, and a login from a Secret."""

from __future__ import annotations

import base64
import os
import signal
from pathlib import Path

import pytest
from kubernetes import client
from kubernetes import config as configuration

from tests.integration.tracking.event_files import read_event_files
from tests.integration.tracking.tracked_programs import STEP_PRINTER
from tests.support.http_proxy import authorizing_proxy
from tests.support.mlflow_server import TRACKING_PYTHON
from tests.support.polling import wait_until
from trainjob import (
    CustomTrainerContainer,
    Evaluate,
    MLflow,
    RunKey,
    TensorBoard,
    TrainJob,
    WorkspaceVolume,
    submit,
    wait,
)
from trainjob.frameworks.tracking.recorder_process import PYTHON_VARIABLE
from trainjob.lifecycle import KillAction, Limits, Listener
from trainjob.status.pods import JOBSET_LABEL
from trainjob_local.kubelet.watchdog import CONTAINER_MARK_VARIABLE, find_marked_processes

# The first attempt never ends by itself. The kubelet restarts its container after the kill, until the TrainJob is
# suspended; this container does nothing.
SOURCE = f"""{STEP_PRINTER}
import pathlib, threading
if pathlib.Path("/workspace/go-on").exists():
    [step(number, 0.5) for number in (3, 4)]
    sys.exit(0)
attempted = pathlib.Path("/workspace/attempted")
if not attempted.exists():
    attempted.touch()
    [step(number, 1.0) for number in (1, 2, 3)]
threading.Event().wait()
"""
# A failed TrainJob is retained, so the next attempt has another number.
LIMITS = Limits(on_failure=KillAction.SUSPEND)
DONE = f"{STEP_PRINTER}\n[step(number, 1.0) for number in (1, 2, 3)]"


@pytest.fixture
def core_api(laptop):
    with configuration.new_client_from_config(str(laptop.kubeconfig)) as api:
        yield client.CoreV1Api(api)


def tracked_job(source, tracking, workspace):
    trainer = CustomTrainerContainer(
        image="docker.io/library/python:3.12-alpine",
        command=("python", "-c", source),
        env={PYTHON_VARIABLE: str(TRACKING_PYTHON)},
    )
    place = WorkspaceVolume(node_path=str(workspace))
    return TrainJob(trainer=trainer, tracking=tracking, workspace=place, on_failure="suspend")


def list_pods(api, job):
    return api.list_namespaced_pod("default", label_selector=f"{JOBSET_LABEL}={job}").items


def first_process(api, job):
    """Return the ID of process 1 of a TrainJob's pod."""
    [pod] = list_pods(api, job)
    return int(pod.status.container_statuses[0].container_id.removeprefix("process://"))


def container_mark(process):
    variables = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    start = f"{CONTAINER_MARK_VARIABLE}=".encode()
    return next(each for each in variables if each.startswith(start)).removeprefix(start).decode()


def run_killed(cluster, api, job, key, is_recorded):
    """Run a TrainJob, kill its pod's process 1 after some steps, and let the next run end."""
    reference = submit(cluster, job, key)
    wait_until(is_recorded)
    process = first_process(api, reference.name)
    mark = container_mark(process)
    assert len(find_marked_processes(mark, CONTAINER_MARK_VARIABLE)) >= 3  # the program, the training, the recorder
    os.kill(process, signal.SIGKILL)
    assert wait(cluster, reference, limits=LIMITS).phase.value == "Failed"
    wait_until(lambda: not find_marked_processes(mark, CONTAINER_MARK_VARIABLE))
    wait_until(lambda: not list_pods(api, reference.name))  # its container may have been restarted before its end
    Path(job.workspace.node_path, "go-on").touch()


def test_a_pod_that_is_killed_and_a_later_attempt_are_one_run(cluster, core_api, mlflow, unique, tmp_path, evidence):
    """SIGKILL of process 1 also ends the training and the recorder; the next attempt continues the run."""
    tracking = MLflow(tracking_uri=mlflow.url, experiment=unique, parameters={"rate": 0.5, "$(HOME)": "$(HOME)"})
    job, key = tracked_job(SOURCE, tracking, tmp_path), RunKey("test", "dag", "tune", unique)

    def read_losses():
        runs = mlflow.list_runs(unique) if mlflow.has_experiment(unique) else []
        return [mlflow.get_metric_history(run["info"]["run_id"], "loss") for run in runs]

    run_killed(cluster, core_api, job, key, lambda: read_losses() == [[(1, 1.0), (2, 1.0), (3, 1.0)]])
    [killed] = mlflow.list_runs(unique)
    reference = submit(cluster, job, key)
    lines: list[str] = []
    wait(cluster, reference, listener=Listener(on_log=lambda line: lines.append(line.text))).raise_for_failure()
    [run] = mlflow.list_runs(unique)
    assert (run["info"]["run_id"], run["info"]["status"]) == (killed["info"]["run_id"], "FINISHED")
    evidence("features", row="MLflow", cell="real run")
    assert read_losses() == [[(1, 1.0), (2, 1.0), (3, 0.5), (3, 1.0), (4, 0.5)]]
    tags = {each["key"]: each["value"] for each in run["data"]["tags"] if each["key"].startswith("trainjob.")}
    assert tags.pop("trainjob.tracked_run")
    assert tags == {
        "trainjob.engine": "test",
        "trainjob.workflow": "dag",
        "trainjob.task": "tune",
        "trainjob.run": unique,
        "trainjob.namespace": "default",
        "trainjob.name": reference.name,
        "trainjob.attempt": "2",
    }
    assert {each["key"]: each["value"] for each in run["data"]["params"]} == {"rate": "0.5", "__HOME_": "$(HOME)"}
    assert [line for line in lines if line.startswith("tracking: ")] == [
        f"tracking: run {mlflow.url}/#/experiments/{run['info']['experiment_id']}/runs/{run['info']['run_id']}"
    ]


@pytest.mark.slow
def test_event_files_of_a_killed_pod_and_a_later_attempt(cluster, core_api, unique, tmp_path, evidence):
    job, key = tracked_job(SOURCE, TensorBoard(), tmp_path), RunKey("test", "a/dag", "tune", unique)

    def find_folder():
        return next(tmp_path.glob("tensorboard/a_dag/tune-*"), None)

    def is_recorded():
        folder = find_folder()
        return folder and read_event_files(folder)["scalars"].get("loss") == [[1, 1.0], [2, 1.0], [3, 1.0]]

    run_killed(cluster, core_api, job, key, is_recorded)
    wait(cluster, submit(cluster, job, key)).raise_for_failure()
    assert read_event_files(find_folder())["scalars"]["loss"] == [[1, 1.0], [2, 1.0], [3, 0.5], [4, 0.5]]
    evidence("features", row="TensorBoard", cell="real run")


@pytest.mark.slow
def test_a_login_from_a_secret(cluster, core_api, mlflow, unique, tmp_path):
    login = {"MLFLOW_TRACKING_USERNAME": "team", "MLFLOW_TRACKING_PASSWORD": "from-the-secret"}
    core_api.create_namespaced_secret("default", {"metadata": {"name": unique}, "stringData": login})
    expected = "Basic " + base64.b64encode(b"team:from-the-secret").decode()
    with authorizing_proxy(mlflow.url, expected) as proxy:
        tracking = MLflow(tracking_uri=proxy.url, experiment=unique, secret=unique)
        reference = submit(cluster, tracked_job(DONE, tracking, tmp_path), RunKey("test", "dag", "tune", unique))
        wait(cluster, reference).raise_for_failure()
    [run] = mlflow.list_runs(unique)
    assert run["info"]["status"] == "FINISHED"
    manifest = cluster.get_trainjob(reference.name, reference.namespace)
    assert "from-the-secret" not in str(manifest)


def count_files(model_path):
    from pathlib import Path

    return [{"files": len(list(Path(model_path).iterdir()))} for _ in range(5)]


def test_an_evaluation_records_the_scores_of_both_models(cluster, mlflow, unique, tmp_path):
    for name, count in (("export", 3), ("champion", 1)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text('{"model_type": "llama"}')
        for number in range(1, count):
            (tmp_path / name / f"{number}.safetensors").touch()
    step = Evaluate(
        workspace=WorkspaceVolume(node_path=str(tmp_path)),
        champion_path="champion",
        function=count_files,
        gates={"count_files/files": {"better_than_champion": True}},
        tracking=MLflow(tracking_uri=mlflow.url, experiment=unique),
        env={PYTHON_VARIABLE: str(TRACKING_PYTHON)},
        any_run=True,
    )
    reference = submit(cluster, step, RunKey("test", "dag", "evaluate", unique))
    wait(cluster, reference).raise_for_failure()
    [run] = mlflow.list_runs(unique)
    found = {each["key"]: each["value"] for each in run["data"]["metrics"]}
    scores = {name: value for name, value in found.items() if not name.startswith("system/")}
    assert scores == {
        "count_files/files": 3.0,
        "champion/count_files/files": 1.0,
        "difference/count_files/files": 2.0,
    }
    parameters = {each["key"]: each["value"] for each in run["data"]["params"]}
    assert (parameters["model"], parameters["champion"]) == ("export", "champion")
    assert run["info"]["status"] == "FINISHED"
