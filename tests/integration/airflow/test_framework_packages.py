"""A DAG that trains with the framework of another package, which only the workers need."""

from __future__ import annotations

import json
import os

import pytest

from tests.integration.airflow.airflow_runs import run_dag
from tests.support.framework_packages import line_framework, line_framework_folder
from tests.support.interrupted_trainings import killing_environment
from trainjob.errors import InvalidSpec
from trainjob.manifest import labels
from trainjob_airflow import FineTuneOperator, TrainJobOperator

__all__ = ["killing_environment", "line_framework", "line_framework_folder"]

pytestmark = [pytest.mark.usefixtures("airflow_environment")]

OPERATORS = {
    "fine-tune": lambda config, **more: FineTuneOperator(
        task_id="t", model="line", workspace="w", config={"framework": "line", **config}, **more
    ),
    "train": lambda config, **more: TrainJobOperator(
        task_id="t", trainer={"config": {"framework": "line", **config}}, **more
    ),
}
OPERATOR = pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)


@OPERATOR
def test_a_dict_of_a_missing_package_is_checked_when_the_task_runs(operator):
    task = operator({"steps": 0})
    with pytest.raises(InvalidSpec, match=r"cannot be 'line': .* install its package where this step runs"):
        task._build_step("w")


@OPERATOR
@pytest.mark.usefixtures("line_framework")
def test_a_dict_of_an_installed_package_is_checked_when_the_dag_is_parsed(operator):
    with pytest.raises(InvalidSpec, match=r"config\.steps cannot be 0"):
        operator({"steps": 0})


@pytest.mark.parametrize("framework", ["torchtune", "trl", "llamafactory", 7])
@OPERATOR
def test_a_dict_of_another_framework_is_checked_when_the_dag_is_parsed(operator, framework):
    with pytest.raises(InvalidSpec):
        operator({"framework": framework, "steps": 0})


@pytest.mark.slow
def test_a_worker_without_the_package_fails_the_task_without_retry(airflow, cluster, tmp_path):
    printed, tasks, state = run_dag(airflow, "other_framework", FOLDER=str(tmp_path))
    assert (tasks, state) == ({"fine_tune": ("failed", 1)}, "failed"), printed[-6000:]
    known = "llamafactory, torchtune, trl, unsloth"
    assert f"cannot be 'line': it must be one of {known}; for another one, install" in printed
    assert not cluster.list_trainjobs("default", f"{labels.WORKFLOW}=other_framework")


@pytest.mark.slow
def test_a_worker_with_the_package_trains_and_a_retry_resumes(
    airflow, tmp_path, killing_environment, line_framework_folder
):
    """The first attempt is killed while it saves its third checkpoint."""
    pod_env = {**killing_environment, "KILL_AT": "checkpoint-150.json.new"}
    path = os.pathsep.join([str(line_framework_folder), os.environ.get("PYTHONPATH", "")])
    (tmp_path / "workspace").mkdir()
    environment = {"FOLDER": str(tmp_path / "workspace"), "POD_ENV": json.dumps(pod_env), "PYTHONPATH": path}
    printed, tasks, state = run_dag(airflow, "other_framework", **environment)
    assert (tasks, state) == ({"fine_tune": ("success", 2)}, "success"), printed[-6000:]
    assert "exit code 137" in printed
    assert printed.count("[node-0] resumed from step 100") == 1
    assert "[node-0] y = 2.000 x + 1.000" in printed
    line = json.loads((tmp_path / "workspace" / "output" / "line.json").read_text())
    assert line == pytest.approx({"slope": 2, "intercept": 1}, abs=0.001)
