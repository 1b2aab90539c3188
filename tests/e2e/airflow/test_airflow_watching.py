"""In a whole Airflow: sensors that begin in the triggerer, and DAGs that are started by TrainJobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.standalone import Standalone, wait_for

pytestmark = pytest.mark.timeout(400)
DAGS = Path(__file__).resolve().parent / "watching"


@pytest.fixture(scope="module")
def there(laptop, tmp_path_factory):
    extra = {"kube_config_path": str(laptop.kubeconfig), "namespace": "default"}
    environment = {
        "AIRFLOW_CONN_KUBERNETES_DEFAULT": json.dumps({"conn_type": "kubernetes", "extra": extra}),
        "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "20",  # how soon a new one takes a dead one's triggers
    }
    with Standalone(tmp_path_factory.mktemp("airflow"), DAGS, **environment) as airflow:
        yield airflow


def apply(cluster, name, **metadata):
    """Make a TrainJob as kubectl does."""
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"image": "busybox", "command": ["true"]}}
    meta = {"name": name, "namespace": "default", **metadata}
    body = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": meta, "spec": spec}
    return cluster.create_trainjob(body)


def tasks(there, run):
    return {ti["task_id"]: ti for ti in there.ask("GET", f"{run}/taskInstances")["task_instances"]}


def result(there, run, task):
    found = there.ask("GET", f"{run}/taskInstances/{task}/xcomEntries/return_value?deserialize=true")
    return found["value"] if found else None


def told(there):
    """The names of the TrainJobs that have started runs, as far as those have ended."""
    dag = "/api/v2/dags/started_by_trainjobs/dagRuns"
    runs = (there.ask("GET", f"{dag}?order_by=run_after") or {}).get("dag_runs", ())
    return [name for run in runs for name in result(there, f"{dag}/{run['dag_run_id']}", "names") or ()]


def kept(there):
    """How many ends the watcher keeps over restarts; None before it has begun."""
    [asset] = there.ask("GET", "/api/v2/assets?uri_pattern=watched")["assets"]
    entries = there.ask("GET", f"/api/v2/assets/{asset['id']}/state-store")["asset_state_store"]
    return len(entries[0]["value"]["told"]) if entries else None


def test_sensors_that_begin_in_the_triggerer_need_no_worker_before_the_end(there, cluster, unique):
    run = there.start("from_trigger", name=unique)
    wait_for(lambda: {ti["state"] for ti in tasks(there, run).values()} == {"deferred"}, 60)
    assert not any(ti["hostname"] for ti in tasks(there, run).values())  # no worker has had them
    apply(cluster, unique)
    wait_for(lambda: there.state(run, "waits") == "success", 90)
    wait_for(lambda: {there.state(run, name) for name in ("too_late", "nonsense")} == {"failed"}, 90)
    after = tasks(there, run)
    assert {name: ti["try_number"] for name, ti in after.items()} == dict.fromkeys(after, 1)  # none was tried again
    assert after["asked_for"]["state"] == "deferred"
    there.mark(run, "asked_for", "failed")
    assert (result(there, run, "waits")["job"], result(there, run, "waits")["phase"]) == (unique, "Complete")


def test_each_trainjob_starts_one_run_also_over_a_kill_of_the_triggerer(there, cluster, unique):
    labels = {"labels": {"suite": "watched"}}
    wait_for(lambda: kept(there) == 0, 60)
    apply(cluster, f"{unique}-a", **labels)
    wait_for(lambda: told(there) == [f"{unique}-a"], 120)
    wait_for(lambda: kept(there) == 1, 30)
    there.kill_part("triggerer")
    apply(cluster, f"{unique}-b", **labels)
    there.start_part("triggerer")
    wait_for(lambda: told(there) == [f"{unique}-a", f"{unique}-b"], 120)
    wait_for(lambda: kept(there) == 2, 30)
