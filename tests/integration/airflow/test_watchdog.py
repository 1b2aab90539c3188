"""A training that hangs, as a task of Airflow."""

from __future__ import annotations

import pytest

from tests.integration.airflow.airflow_runs import read_xcom, run_dag
from trainjob_airflow.task_failure import FAILURE_KEY

pytestmark = [pytest.mark.usefixtures("airflow_environment"), pytest.mark.slow]


@pytest.mark.parametrize("deferrable", ["1", "0"], ids=["deferrable", "on the worker"])
def test_another_attempt_follows_in_the_same_try(airflow, tmp_path, deferrable):
    marker = str(tmp_path / "marker")
    printed, tasks, _ = run_dag(airflow, "hanging", DEFERRABLE=deferrable, MARKER=marker, ACTION="restart")
    assert tasks == {"train": ("success", 1)}, printed[-6000:]
    assert "was ended by its watchdog (the training hung: node-0 (laptop) has made no step for" in printed
    assert "starting another attempt, interruption 1 of 3" in printed


def test_the_task_fails_with_the_place(airflow, tmp_path):
    printed, tasks, _ = run_dag(airflow, "hanging", DEFERRABLE="1", MARKER=str(tmp_path / "marker"), ACTION="fail")
    assert tasks == {"train": ("failed", 1)}, printed[-6000:]
    failure = read_xcom("hanging", FAILURE_KEY)
    assert (failure["kind"], failure["category"]) == ("Hung", "Hung")
    assert " since step 2: it is in python" in failure["hang"]
