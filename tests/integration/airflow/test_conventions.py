"""Tests of arguments and habits that users know from Airflow's other operators."""

from __future__ import annotations

import pytest
from airflow.sdk import DAG

from tests.integration.airflow.airflow_runs import both_modes, list_xcom_keys, run_dag
from tests.support.metric_receivers import StatsdServer
from trainjob.errors import InvalidSpec
from trainjob_airflow import TrainJobOperator, Workspace

TRAINER = {"image": "i", "command": ["c"]}


@both_modes()
def test_templates_exit_codes_and_xcoms_follow_the_conventions(airflow, deferrable):
    with StatsdServer() as server:
        printed, tasks, _ = run_dag(airflow, "conventions", DEFERRABLE=deferrable, **server.settings)
    states = {task: state for task, (state, _) in tasks.items()}
    assert states == {
        "workspace_create": "success",
        "skipped": "skipped",
        "failed": "failed",
        "quiet": "success",
        "trained": "success",
        "workspace_delete": "success",
    }, printed[-6000:]
    keys = {task: list_xcom_keys("conventions", task) for task in tasks}
    assert keys["quiet"] == keys["failed"] == set()
    assert {"progress", "usage", "return_value"} <= keys["trained"]
    assert "failure" not in keys["skipped"]
    assert ": 1Gi, ReadWriteOnce" in printed
    assert "is kept: keep='always'" in printed
    assert sum(sample.value for sample in server.find("airflow.resumable_job.fresh_submit")) == 4


@pytest.mark.parametrize("given", [0, 256, True, "99", 9.5, ["1"], [0]])
def test_a_wrong_exit_code_is_refused_when_the_dag_is_parsed(given):
    with pytest.raises(InvalidSpec, match=r"^skip_on_exit_code cannot be"):
        TrainJobOperator(task_id="t", trainer=TRAINER, skip_on_exit_code=given)


def test_a_task_that_shall_not_be_durable_is_refused_with_the_reason():
    assert TrainJobOperator(task_id="t", trainer=TRAINER, durable=True).durable
    with pytest.raises(InvalidSpec, match=r"durable cannot be False.*the next try adopts it"):
        TrainJobOperator(task_id="t", trainer=TRAINER, durable=False)


PLACES = [
    ({"kubernetes_conn_id": "a"}, {"kubernetes_conn_id": "b"}),
    ({"kubernetes_conn_id": "a"}, {}),
    ({}, {"cluster_context": "b"}),
    ({"in_cluster": True}, {"in_cluster": False}),
    ({"namespace": "a"}, {"namespace": "b"}),
]


@pytest.mark.parametrize(("workspace", "step"), PLACES)
def test_a_step_in_another_place_than_its_workspace_is_refused_when_the_dag_is_parsed(workspace, step):
    with pytest.raises(InvalidSpec, match=f"^{[*workspace, *step][-1]} cannot be .*the workspace scratch has"):
        TrainJobOperator(task_id="t", trainer=TRAINER, workspace=Workspace("1Gi", name="scratch", **workspace), **step)


@pytest.mark.parametrize(
    ("workspace", "step"),
    [({}, {}), ({"namespace": "a"}, {}), ({"kubernetes_conn_id": "{{ params.a }}"}, {"kubernetes_conn_id": "b"})],
)
def test_places_that_may_be_the_same_are_accepted(workspace, step):
    TrainJobOperator(task_id="t", trainer=TRAINER, workspace=Workspace("1Gi", **workspace), **step)


def test_a_rendered_workspace_is_a_copy():
    """Tasks of a DAG share the object, and `dag.test()` renders it for several runs in one process."""
    workspace = Workspace("{{ params.size }}", keep="{{ params.keep }}", storage_class="{{ params.storage }}")
    with DAG("d"):
        task = TrainJobOperator(task_id="t", trainer=TRAINER, workspace=workspace)
    for size in ("1Gi", "2Gi"):
        context = {"params": {"size": size, "keep": "never", "storage": "fast"}}
        rendered = task.render_template(workspace, context, task.get_template_env())
        assert (rendered.size, rendered.keep, rendered.storage_class) == (size, "never", "fast")
    assert workspace.size == "{{ params.size }}"
