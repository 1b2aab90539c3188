"""Tests of tracked trainings in Airflow: the link, the XComs, and the run on a real MLflow server."""

from __future__ import annotations

import pytest
from airflow.sdk import DAG, task

from tests.integration.airflow.airflow_runs import read_xcom, run_dag
from tests.support.mlflow_server import TRACKING_PYTHON, MLflowServer
from trainjob import TensorBoard

URL = "http://mlflow.example/#/experiments/1/runs"
LINK = "_link_TrackedRunLink"


@pytest.mark.slow
def test_the_address_of_the_tracked_run_is_a_link_and_in_the_xcoms(airflow):
    output, tasks, _ = run_dag(airflow, "logged")
    states = {name: state for name, (state, _) in tasks.items()}
    assert states == {"on_worker": "success", "deferred": "success", "failed": "failed"}, output[-4000:]
    for name in states:
        assert read_xcom("logged", LINK, name) == f"{URL}/{name}"
        assert read_xcom("logged", "progress", name)["tracking_url"] == f"{URL}/{name}"
    for name in ("on_worker", "deferred"):
        assert read_xcom("logged", "return_value", name)["tracking_url"] == f"{URL}/{name}"


def test_a_decorated_function_is_tracked_without_templates():
    @task.trainjob(workspace="w", tracking=TensorBoard())
    def train():
        pass

    with DAG("d", schedule=None):
        assert train().operator.tracking == TensorBoard()


@pytest.mark.slow
@pytest.mark.torchtune
def test_a_tracked_run_has_the_origin_of_its_task(airflow):
    with MLflowServer() as server:
        environment = {"MLFLOW_SERVER": server.url, "TRACKING_PYTHON": str(TRACKING_PYTHON)}
        output, tasks, _ = run_dag(airflow, "tracked", **environment)
        assert tasks["train"][0] == "success", output[-4000:]
        [run] = server.list_runs("tracked")
        history = server.get_metric_history(run["info"]["run_id"], "loss")
    assert history == [(1, 1.0), (2, 0.5), (3, pytest.approx(1 / 3))]
    assert run["info"]["status"] == "FINISHED"
    parameters = {each["key"]: each["value"] for each in run["data"]["params"]}
    assert parameters == {"learning_rate": "0.5", "dataset": "tickets/train"}
    tags = {each["key"]: each["value"] for each in run["data"]["tags"]}
    result = read_xcom("tracked", "return_value", "train")
    assert result["tracking_url"].startswith(f"{server.url}/#/experiments/")
    assert result["tracking_url"].endswith(f"/runs/{run['info']['run_id']}")
    assert tags["trainjob.run"] in run["info"]["run_name"]
    origin = {name: tags[f"trainjob.{name}"] for name in ("engine", "workflow", "task", "namespace", "name", "attempt")}
    assert origin == {
        "engine": "airflow",
        "workflow": "tracked",
        "task": "train",
        "namespace": "default",
        "name": result["job"],
        "attempt": "1",
    }
