"""Test of a sweep in a DAG: it deletes only active TrainJobs of ended tasks of this Airflow."""

from __future__ import annotations

import pytest

from tests.integration.airflow.airflow_runs import run_dag
from trainjob.manifest import labels

pytestmark = [pytest.mark.usefixtures("airflow"), pytest.mark.timeout(180)]


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
