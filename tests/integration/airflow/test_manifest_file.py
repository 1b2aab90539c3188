"""Tests of TrainJobs from a manifest file with templates, and of invalid manifests."""

from __future__ import annotations

import pytest

from trainjob import InvalidSpec
from trainjob_airflow import TrainJobOperator

MANIFEST = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "spec": {"runtimeRef": {"name": "torch-distributed"}},
}


@pytest.mark.slow
def test_a_file_is_rendered_and_run_on_two_nodes(airflow, cluster):
    done = airflow("dags", "test", "written")
    assert done.returncode == 0, done.stdout[-4000:]
    for rank in (0, 1):
        assert f"[node-{rank}] hello written, run manual__" in done.stdout
    [job] = [job for job in cluster.list_trainjobs("default") if job["metadata"]["labels"].get("team") == "tickets"]
    assert job["metadata"]["name"].startswith("nightly-")
    assert job["metadata"]["labels"]["trainjob.dev/workflow"] == "written"
    assert job["spec"]["trainer"]["numNodes"] == 2


def test_a_dict_is_checked_when_the_dag_is_parsed():
    TrainJobOperator(task_id="t", manifest=MANIFEST)
    TrainJobOperator(task_id="t", manifest={**MANIFEST, "kind": "{{ params.kind }}"})
    with pytest.raises(InvalidSpec, match=r"manifest\.kind cannot be 'PyTorchJob'"):
        TrainJobOperator(task_id="t", manifest={**MANIFEST, "kind": "PyTorchJob"})


def test_a_manifest_excludes_other_arguments():
    with pytest.raises(InvalidSpec, match="given with runtime, queue_name"):
        TrainJobOperator(task_id="t", manifest=MANIFEST, runtime="torch-distributed", queue_name="q")
    assert TrainJobOperator(task_id="t", manifest=MANIFEST, max_restarts=3).manifest == MANIFEST


def test_arguments_of_a_decorated_function_are_not_template_files():
    from airflow.sdk import task

    @task.trainjob(image="busybox")
    def train(path: str):
        print(path)

    operator = train("data.json").operator
    operator.resolve_template_files()
    assert list(operator.op_args) == ["data.json"]
    with pytest.raises(InvalidSpec, match="the decorated function is the trainer"):
        task.trainjob(manifest=MANIFEST)(train.function)("data.json")
