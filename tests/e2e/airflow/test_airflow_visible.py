"""What a person sees and does in a whole Airflow while a TrainJob runs: links, progress, asset events, kills."""

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


@pytest.fixture(scope="module")
def airflow(laptop, tmp_path_factory):
    extra = {"kube_config_path": str(laptop.kubeconfig), "namespace": "default", **LINKS}
    connection = json.dumps({"conn_type": "kubernetes", "extra": extra})
    with Standalone(tmp_path_factory.mktemp("standalone"), DAGS, AIRFLOW_CONN_KUBERNETES_DEFAULT=connection) as there:
        yield there


def jobs_of(cluster, run):
    """The TrainJobs of a DAG run, oldest first."""
    run = run.rpartition("/")[2]
    found = cluster.list_trainjobs("default")
    mine = [job for job in found if json.loads(job["metadata"]["annotations"][labels.RUN_KEY])["run"] == run]
    return sorted(mine, key=lambda job: job["metadata"]["creationTimestamp"])


def get_progress(airflow, run):
    found = airflow.request("GET", f"{run}/taskInstances/train/xcomEntries/progress?deserialize=true")
    return found and found["value"]


def test_a_deferred_task_shows_its_progress_and_links_and_ends_with_an_asset_event(airflow, cluster, tmp_path):
    go = tmp_path / "go"
    script = (
        "echo 'epochs: 2'; echo '1|5|Loss: 2.5:  50%|##| 5/10 [x'; "
        f"while [ ! -e {go} ]; do sleep 0.2; done; echo '2|20|Loss: 0.5: 100%|##| 10/10 [x'"
    )
    run = airflow.start_run("visible", script=script)

    def told():
        shown = get_progress(airflow, run) or {}
        return shown.get("step") and shown["phase"] and shown  # which of the two is known first is open

    shown = wait_for_airflow(
        told, 240
    )  # a triggerer's first XCom waits until it has built an API of its own: once, for long
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
    }
    [job] = jobs_of(cluster, run)
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    links = airflow.request("GET", f"{run}/taskInstances/train/links")["extra_links"]
    metrics = f'https://grafana.example/d/x?panes={{"a":1}}&var-job={name}&var-server={cluster.server}'
    assert links["TrainJob"] == f"https://k8s.example/default/trainjobs/{name}?uid={uid}"
    assert links["Metrics"] == metrics
    assert not links["Logs page"]
    assert not links["Pods"]
    go.touch()
    wait_for_airflow(lambda: airflow.get_state(run) == "success", 90)
    shown = get_progress(airflow, run)
    assert (shown["phase"], shown["step"], shown["percent"], shown["loss"]) == ("Complete", 20, 100.0, 0.5)
    assert airflow.request("GET", f"{run}/taskInstances/train/links")["extra_links"]["Metrics"] == metrics
    [event] = [
        event
        for event in airflow.request("GET", "/api/v2/assets/events")["asset_events"]
        if event["source_run_id"] == run.rpartition("/")[2]
    ]
    assert event["extra"]["trainjob"] == f"default/{name}"
    assert event["extra"]["metrics"]["loss"] == 0.5


def test_a_failed_job_says_why(airflow):
    run = airflow.start_run("visible", script="exit 3")
    wait_for_airflow(lambda: airflow.get_state(run) == "failed", 150)
    shown = get_progress(airflow, run)
    assert shown["phase"] == "Failed"
    assert "exit code 3" in shown["reason"]
    assert airflow.request("GET", f"{run}/taskInstances/train")["try_number"] == 2


def test_twenty_short_jobs_at_once_all_end_well(airflow):
    run = airflow.start_run("twenty")
    wait_for_airflow(lambda: airflow.get_state(run) in ("success", "failed"), 300)
    assert airflow.get_state(run) == "success"
    assert "finished with state success, but the task" not in airflow.log.read_text()


def test_a_short_job_whose_worker_goes_slowly_is_not_failed_by_the_scheduler(airflow):
    """Without the trigger's first seconds the scheduler takes the old worker's end for the end of the resumed task."""
    run = airflow.start_run("slow_to_go")
    wait_for_airflow(lambda: airflow.get_state(run) in ("success", "failed"), 120)
    assert airflow.get_state(run) == "success"


# -- a worker is stopped, and a person decides ------------------------------------------------------------------------


@pytest.fixture
def held_task(airflow, cluster, tmp_path):
    """A task that waits on its worker for a job that runs until a file appears: the run, the job's uid, the file."""
    go = tmp_path / "go"
    run = airflow.start_run("held", script=f"while [ ! -e {go} ]; do sleep 0.2; done")
    wait_for_airflow(
        lambda: [job for job in jobs_of(cluster, run) if cluster.list_pods(job["metadata"]["name"], "default")], 90
    )
    yield run, jobs_of(cluster, run)[0]["metadata"]["uid"], go
    go.touch()


def trainjob_uids(cluster, run):
    return [job["metadata"]["uid"] for job in jobs_of(cluster, run)]


def test_a_worker_that_is_stopped_costs_no_try_and_leaves_the_job_to_the_next_one(airflow, cluster, held_task):
    run, uid, go = held_task
    task = f"{run}/taskInstances/train"
    pid = airflow.request("GET", task)["pid"]
    supervisor = int(subprocess.check_output(["ps", "-o", "ppid=", "-p", str(pid)], text=True))
    os.kill(supervisor, signal.SIGTERM)
    wait_for_airflow(lambda: airflow.request("GET", task)["pid"] != pid, 60)
    wait_for_airflow(lambda: airflow.get_state(run, "train") == "running", 60)
    go.touch()
    wait_for_airflow(lambda: airflow.get_state(run) in ("success", "failed"), 90)
    assert airflow.get_state(run) == "success"
    assert airflow.request("GET", task)["try_number"] == 1
    assert trainjob_uids(cluster, run) == [uid]


def test_a_person_who_marks_the_task_ends_the_job(airflow, cluster, held_task):
    run, _, _ = held_task
    airflow.mark_task(run, "train", "failed")
    wait_for_airflow(lambda: not trainjob_uids(cluster, run), 20)
    assert airflow.get_state(run, "train") == "failed"
