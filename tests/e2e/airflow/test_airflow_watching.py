"""A complete Airflow with sensors that start in the triggerer, and DAGs that TrainJobs start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.airflow_versions import needs_asset_state_store, needs_start_from_trigger
from tests.support.standalone import Standalone, wait_for_airflow

pytestmark = pytest.mark.timeout(900)
DAGS = Path(__file__).resolve().parent / "watching"
KILLS = 4


@pytest.fixture(scope="module")
def airflow(laptop, installation, tmp_path_factory):
    extra = {"kube_config_path": str(laptop.kubeconfig), "namespace": "default"}
    environment = {
        "AIRFLOW_CONN_KUBERNETES_DEFAULT": json.dumps({"conn_type": "kubernetes", "extra": extra}),
        "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "20",  # seconds until another one takes its triggers
    }
    with Standalone(tmp_path_factory.mktemp("airflow"), DAGS, **installation, **environment) as airflow:
        yield airflow


def apply_trainjob(cluster, name, **metadata):
    """Create a TrainJob as `kubectl apply` does."""
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"image": "busybox", "command": ["true"]}}
    meta = {"name": name, "namespace": "default", **metadata}
    body = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": meta, "spec": spec}
    return cluster.create_trainjob(body)


def get_tasks(airflow, run):
    return {ti["task_id"]: ti for ti in airflow.request("GET", f"{run}/taskInstances")["task_instances"]}


def get_result(airflow, run, task):
    found = airflow.request("GET", f"{run}/taskInstances/{task}/xcomEntries/return_value?deserialize=true")
    return found["value"] if found else None


def list_reported_names(airflow):
    """Return the names of the TrainJobs whose runs have ended."""
    dag = "/api/v2/dags/started_by_trainjobs/dagRuns"
    runs = (airflow.request("GET", f"{dag}?order_by=run_after") or {}).get("dag_runs", ())
    return [name for run in runs for name in get_result(airflow, f"{dag}/{run['dag_run_id']}", "names") or ()]


def count_stored_names(airflow):
    """Return the number of finished TrainJobs in the watcher's state store.

    None means that the watcher has not started.
    """
    [asset] = airflow.request("GET", "/api/v2/assets?uri_pattern=watched")["assets"]
    entries = airflow.request("GET", f"/api/v2/assets/{asset['id']}/state-store")["asset_state_store"]
    return len(entries[0]["value"]["told"]) if entries else None  # serialized name


@needs_start_from_trigger
def test_sensors_that_start_in_the_triggerer_need_no_worker_before_the_end(airflow, cluster, unique):
    run = airflow.start_run("from_trigger", name=unique)
    wait_for_airflow(lambda: {ti["state"] for ti in get_tasks(airflow, run).values()} == {"deferred"}, 60)
    assert not any(ti["hostname"] for ti in get_tasks(airflow, run).values())  # no worker has run them
    apply_trainjob(cluster, unique)
    wait_for_airflow(lambda: airflow.get_state(run, "waits") == "success", 90)
    wait_for_airflow(lambda: {airflow.get_state(run, name) for name in ("too_late", "nonsense")} == {"failed"}, 90)
    after = get_tasks(airflow, run)
    assert {name: ti["try_number"] for name, ti in after.items()} == dict.fromkeys(after, 1)  # none was retried
    assert after["by_run_key"]["state"] == "deferred"
    airflow.mark_task(run, "by_run_key", "failed")
    assert (get_result(airflow, run, "waits")["job"], get_result(airflow, run, "waits")["phase"]) == (
        unique,
        "Complete",
    )


@needs_asset_state_store
def test_each_trainjob_starts_one_run_even_if_the_triggerer_is_killed(airflow, cluster, unique, record_case):
    names = [f"{unique}-{number}" for number in range(KILLS + 1)]
    wait_for_airflow(lambda: count_stored_names(airflow) == 0, 60)
    for number, name in enumerate(names):
        killed = airflow.kill_component("triggerer") if number else 0
        apply_trainjob(cluster, name, labels={"suite": "watched"})
        airflow.start_components("triggerer", killed)
        expected = names[: number + 1]
        wait_for_airflow(lambda expected=expected: list_reported_names(airflow) == expected, 120)
        wait_for_airflow(lambda expected=expected: count_stored_names(airflow) == len(expected), 30)
    record_case(f"asset watcher, {KILLS} times kill -9 of all triggerers", f"{len(names)} events, none twice")
