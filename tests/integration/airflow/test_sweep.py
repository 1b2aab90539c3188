"""Tests of sweeps in DAGs: they delete only active TrainJobs of ended tasks of this Airflow, and finished ones."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.integration.airflow.airflow_runs import run_dag
from tests.support.airflow_versions import load_dags
from trainjob import CustomTrainerContainer, RunKey, TrainJob, submit, wait
from trainjob.manifest import labels

pytestmark = [pytest.mark.usefixtures("airflow")]


@pytest.fixture
def namespace(cluster, unique):
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique}}
    cluster._http.request("POST", "/api/v1/namespaces", doing="create a namespace", body=body)
    yield unique
    cluster._http.request("DELETE", f"/api/v1/namespaces/{unique}", doing="delete a namespace")


@pytest.mark.slow
def test_active_trainjobs_of_ended_tasks_and_deleted_runs_are_deleted(airflow, cluster, namespace):
    log, tasks, state = run_dag(airflow, "left_behind", SWEEP_NAMESPACE=namespace)
    assert (state, tasks["sweep"][0]) == ("success", "success"), log[-4000:]
    remaining = {job["metadata"]["labels"][labels.TASK] for job in cluster.list_trainjobs(namespace)}
    assert remaining == {"kept", "sweep", "of-an-unknown-dag", "of-another-airflow", "of-another-engine"}
    assert log.count("deleted: no process waits for it any more") == 2, log[-4000:]


def write_dag_file(folder):
    (folder / "trainjob_sweep.py").write_text("from trainjob_airflow.sweep_dag import dag\n")


def test_a_file_with_one_line_adds_the_sweep_of_the_provider(airflow, tmp_path):
    write_dag_file(tmp_path)
    bag = load_dags(tmp_path)
    assert bag.import_errors == {}
    assert list(bag.dags) == ["trainjob_sweep"]
    dag = bag.dags["trainjob_sweep"]
    assert (dag.catchup, dag.max_active_runs, bool(dag.doc_md)) == (False, 1, True)


@pytest.mark.slow
def test_the_sweep_of_the_provider_covers_each_connection_and_namespace(airflow, cluster, namespace, unique, tmp_path):
    jobs = [submit_short_lived_job(cluster, where, unique) for where in (namespace, "default")]
    for job in jobs:
        assert wait(cluster, job).succeeded
    write_dag_file(tmp_path)
    sources = f"kubernetes_default/{namespace}, kubernetes_default"
    environment = {"AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path), "AIRFLOW__TRAINJOB__PAGE_CONNECTIONS": sources}
    log, _, state = run_dag(airflow, "trainjob_sweep", **environment)
    assert state == "success", log[-4000:]
    assert [cluster.get_trainjob(job.name, job.namespace) for job in jobs] == [None, None]


def submit_short_lived_job(cluster, namespace, unique):
    trainer = CustomTrainerContainer(image="busybox", command=("true",))
    job = TrainJob(trainer=trainer, ttl_after_success=timedelta(0))
    return submit(cluster, job, RunKey("test", "sweep", unique, namespace), namespace=namespace)
