"""The examples of schedules run in a complete Airflow: intervals and backfills, partitions and alerts."""

from __future__ import annotations

import json
import shutil
import subprocess
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.standalone import SHORT_INTERVALS, Standalone, wait_for_airflow

pytestmark = pytest.mark.timeout(1200)
EXAMPLES = ROOT / "examples" / "airflow_3_3"
DAGS = Path(__file__).resolve().parent / "dags"


@pytest.fixture(scope="module")
def airflow(laptop, tmp_path_factory):
    """Start Airflow with the examples; the alert comes after a second instead of 6 hours."""
    home, dags = tmp_path_factory.mktemp("airflow"), tmp_path_factory.mktemp("dags")
    for file in (*EXAMPLES.glob("*.py"), DAGS / "dateless.py"):
        shutil.copy(file, dags)
    source, limit = (dags / "intervals.py").read_text(), "interval=timedelta(hours=6)"
    assert limit in source
    (dags / "intervals.py").write_text(source.replace(limit, "interval=timedelta(seconds=1)"))
    extra = {"kube_config_path": str(laptop.kubeconfig), "namespace": "default"}
    connection = json.dumps({"conn_type": "kubernetes", "extra": extra})
    more = {"AIRFLOW_CONN_KUBERNETES_DEFAULT": connection, "PYTHONPATH": str(dags)}
    with Standalone(home, dags, **{**SHORT_INTERVALS, **more}) as airflow:
        yield airflow


def list_runs(airflow, dag):
    return (airflow.request("GET", f"/api/v2/dags/{dag}/dagRuns?order_by=id") or {}).get("dag_runs", [])


def wait_for_runs(airflow, dag, count, **fields):
    """Return the ended runs of a DAG with these fields, as soon as there are as many."""

    def find_ended():
        runs = [run for run in list_runs(airflow, dag) if all(run[name] == value for name, value in fields.items())]
        ended = [run for run in runs if run["state"] in ("success", "failed")]
        return ended if len(ended) >= count else None

    return wait_for_airflow(find_ended, 200)


def read_task_log(airflow, run, task):
    path = f"/api/v2/dags/{run['dag_id']}/dagRuns/{run['dag_run_id']}/taskInstances/{task}/logs/1?full_content=true"
    return json.dumps(airflow.request("GET", path)["content"])


def test_a_backfill_trains_on_each_day_in_a_queue_of_low_priority(airflow, cluster):
    wait_for_airflow(lambda: airflow.request("GET", "/api/v2/dags/intervals"), 120)
    first, last = (datetime(2026, 11, day, tzinfo=timezone.utc).isoformat() for day in (10, 13))
    arguments = ["--dag-id", "intervals", "--from-date", first, "--to-date", last]
    program = Path(shutil.which("airflow", path=airflow.environment["PATH"]))
    subprocess.run([program, "backfill", "create", *arguments], env=airflow.environment, check=True)
    runs = wait_for_runs(airflow, "intervals", 3, run_type="backfill")
    assert [run["state"] for run in runs] == ["success"] * 3, airflow.log.read_text()[-6000:]
    for run in runs:
        begin = datetime.fromisoformat(run["data_interval_start"])
        end = begin + timedelta(days=1)
        line = f"rows from {begin.strftime('%Y-%m-%dT%H:%M:%S')}+00:00 to {end.strftime('%Y-%m-%dT%H:%M:%S')}+00:00"
        assert line in read_task_log(airflow, run, "train")
    found = [job["metadata"]["labels"] for job in cluster.list_trainjobs("default", selector="")]
    priorities = [labels["kueue.x-k8s.io/priority-class"] for labels in found if "kueue.x-k8s.io/queue-name" in labels]
    assert priorities.count("backfill") == 3
    wait_for_airflow(lambda: "of intervals is late" in airflow.log.read_text(), 120)


def test_the_partition_of_an_asset_starts_a_training_with_its_key(airflow, cluster):
    wait_for_airflow(lambda: airflow.request("GET", "/api/v2/dags/train_on_a_day"), 120)
    body = {"logical_date": None, "partition_key": "2026-11-28"}
    airflow.request("POST", "/api/v2/dags/collect_tickets/dagRuns", body)
    [run] = wait_for_runs(airflow, "train_on_a_day", 1, partition_key="2026-11-28")
    assert run["state"] == "success", airflow.log.read_text()[-6000:]
    path = f"/api/v2/dags/train_on_a_day/dagRuns/{run['dag_run_id']}/taskInstances/train/xcomEntries/return_value"
    assert airflow.request("GET", f"{path}?deserialize=true")["value"]["result"] == {"day": "2026-11-28"}
    days = [job["metadata"]["labels"].get("example.org/day") for job in cluster.list_trainjobs("default", selector="")]
    assert "2026-11-28" in days


def test_a_run_without_a_logical_date_that_a_later_task_needs_fails_at_its_first_task(airflow):
    run = airflow.start_run("dateless")
    wait_for_airflow(lambda: airflow.get_state(run) == "failed", 180)
    states = {task: airflow.get_state(run, task) for task in ("workspace_create", "train", "export")}
    assert states == {"workspace_create": "failed", "train": "upstream_failed", "export": "upstream_failed"}
    dag, _, name = run.removeprefix("/api/v2/dags/").split("/", 2)
    log = read_task_log(airflow, {"dag_id": dag, "dag_run_id": name}, "workspace_create")
    assert "later tasks need one: export.destination ('/workspace/{{ ds }}'); use run_id" in log
