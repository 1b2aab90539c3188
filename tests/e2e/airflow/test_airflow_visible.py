"""A complete Airflow while a TrainJob runs: links, progress, asset events, and kills of the worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.standalone import Standalone, wait_for_airflow
from trainjob.manifest import labels

DAGS = Path(__file__).resolve().parent / "dags"
pytestmark = pytest.mark.timeout(600)
LINKS = {
    "trainjob_url": "https://k8s.example/{namespace}/trainjobs/{name}?uid={uid}",
    "trainjob_metrics_url": 'https://grafana.example/d/x?panes={"a":1}&var-job={name}&var-server={server}',
    "trainjob_logs_url": "javascript:{name}",
}

TRACKED_RUN = "https://mlflow.example/#/experiments/1/runs/2"


@pytest.fixture(scope="module")
def airflow(laptop, installation, tmp_path_factory):
    extra = {"kube_config_path": str(laptop.kubeconfig), "namespace": "default", **LINKS}
    connection = json.dumps({"conn_type": "kubernetes", "extra": extra})
    with Standalone(
        tmp_path_factory.mktemp("standalone"), DAGS, **installation, AIRFLOW_CONN_KUBERNETES_DEFAULT=connection
    ) as airflow:
        yield airflow


def trainjobs_of(cluster, run):
    """Return the TrainJobs of a DAG run, oldest first."""
    run = run.rpartition("/")[2]
    found = cluster.list_trainjobs("default")
    own = [job for job in found if json.loads(job["metadata"]["annotations"][labels.RUN_KEY])["run"] == run]
    return sorted(own, key=lambda job: job["metadata"]["creationTimestamp"])


def get_progress(airflow, run):
    found = airflow.request("GET", f"{run}/taskInstances/train/xcomEntries/progress?deserialize=true")
    return found and found["value"]


def get_links(airflow, run):
    return airflow.request("GET", f"{run}/taskInstances/train/links")["extra_links"]


def test_a_deferred_task_has_progress_links_and_an_asset_event(airflow, cluster, tmp_path):
    release_file = tmp_path / "release_file"
    script = (
        f"echo 'tracking: run {TRACKED_RUN}'; echo 'epochs: 2'; echo '1|5|Loss: 2.5:  50%|##| 5/10 [x'; "
        f"while [ ! -e {release_file} ]; do sleep 0.2; done; echo '2|20|Loss: 0.5: 100%|##| 10/10 [x'"
    )
    run = airflow.start_run("visible", script=script)

    def progress_with_steps():
        shown = get_progress(airflow, run) or {}
        return shown.get("step") and shown["phase"] and shown  # either of the two can be known first

    # The first XCom of a triggerer takes long, because the triggerer creates an API client of its own first.
    shown = wait_for_airflow(progress_with_steps, 240)
    assert airflow.get_state(run, "train") == "deferred"
    assert shown == {
        "phase": "Running",
        "reason": "",
        "percent": 25.0,
        "step": 5,
        "total": 20,
        "epoch": 1,
        "epochs": 2,
        "loss": 2.5,
        "tracking_url": TRACKED_RUN,
    }
    [job] = trainjobs_of(cluster, run)
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    links = wait_for_airflow(lambda: (found := get_links(airflow, run))["Tracked run"] and found, 60)
    assert airflow.get_state(run, "train") == "deferred"
    assert links["Tracked run"] == TRACKED_RUN
    metrics = f'https://grafana.example/d/x?panes={{"a":1}}&var-job={name}&var-server={cluster.server}'
    assert links["TrainJob"] == f"https://k8s.example/default/trainjobs/{name}?uid={uid}"
    assert links["Metrics"] == metrics
    assert not links["Logs page"]
    assert not links["Pods"]
    release_file.touch()
    wait_for_airflow(lambda: airflow.get_state(run) == "success", 90)
    shown = get_progress(airflow, run)
    assert (shown["phase"], shown["step"], shown["percent"], shown["loss"]) == ("Complete", 20, 100.0, 0.5)
    links = get_links(airflow, run)
    assert (links["Metrics"], links["Tracked run"]) == (metrics, TRACKED_RUN)
    [event] = [
        event
        for event in airflow.request("GET", "/api/v2/assets/events")["asset_events"]
        if event["source_run_id"] == run.rpartition("/")[2]
    ]
    assert event["extra"]["trainjob"] == f"default/{name}"
    assert event["extra"]["metrics"]["loss"] == 0.5
    assert event["extra"]["tracking_url"] == TRACKED_RUN


def test_the_progress_of_a_failed_job_has_the_reason(airflow):
    run = airflow.start_run("visible", script="exit 3")
    wait_for_airflow(lambda: airflow.get_state(run) == "failed", 150)
    shown = get_progress(airflow, run)
    assert shown["phase"] == "Failed"
    assert "exit code 3" in shown["reason"]
    assert airflow.request("GET", f"{run}/taskInstances/train")["try_number"] == 2


def test_twenty_concurrent_short_jobs_succeed(airflow):
    run = airflow.start_run("twenty")
    wait_for_airflow(lambda: airflow.get_state(run) in ("success", "failed"), 300)
    assert airflow.get_state(run) == "success"
    assert "finished with state success, but the task" not in airflow.log.read_text()


def test_a_short_job_with_a_slow_worker_is_not_failed_by_the_scheduler(airflow):
    """The trigger waits before it fires. Otherwise the scheduler takes the old worker's end for the resumed task's."""
    run = airflow.start_run("slow_resume")
    wait_for_airflow(lambda: airflow.get_state(run) in ("success", "failed"), 120)
    assert airflow.get_state(run) == "success"


# -- a worker is stopped, and a user marks a task ---------------------------------------------------------------------


@pytest.fixture
def held_task(airflow, cluster, tmp_path):
    """Return the run of a task that waits on its worker, its job's UID and release file."""
    release_file = tmp_path / "release_file"
    run = airflow.start_run("held", script=f"while [ ! -e {release_file} ]; do sleep 0.2; done")
    wait_for_airflow(
        lambda: [job for job in trainjobs_of(cluster, run) if cluster.list_pods(job["metadata"]["name"], "default")], 90
    )
    yield run, trainjobs_of(cluster, run)[0]["metadata"]["uid"], release_file
    release_file.touch()


def trainjob_uids(cluster, run):
    return [job["metadata"]["uid"] for job in trainjobs_of(cluster, run)]


def test_the_next_worker_adopts_the_job_of_a_stopped_worker_in_the_same_try(airflow, cluster, held_task):
    run, uid, release_file = held_task
    task = f"{run}/taskInstances/train"
    pid = airflow.request("GET", task)["pid"]
    supervisor = int(subprocess.check_output(["ps", "-o", "ppid=", "-p", str(pid)], text=True))
    os.kill(supervisor, signal.SIGTERM)
    wait_for_airflow(lambda: airflow.request("GET", task)["pid"] != pid, 60)
    wait_for_airflow(lambda: airflow.get_state(run, "train") == "running", 60)
    release_file.touch()
    wait_for_airflow(lambda: airflow.get_state(run) in ("success", "failed"), 90)
    assert airflow.get_state(run) == "success"
    assert airflow.request("GET", task)["try_number"] == 1
    assert trainjob_uids(cluster, run) == [uid]


def test_marking_a_task_as_failed_deletes_its_job(airflow, cluster, held_task):
    run, _, _ = held_task
    airflow.mark_task(run, "train", "failed")
    wait_for_airflow(lambda: not trainjob_uids(cluster, run), 20)
    assert airflow.get_state(run, "train") == "failed"
