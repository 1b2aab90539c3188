"""Tests of the operators that change which model is served, with a function on the laptop cluster."""

from __future__ import annotations

import pytest

from tests.integration.airflow.airflow_runs import read_xcom, run_dag
from trainjob import InvalidSpec
from trainjob_airflow import PromoteOperator, RollbackOperator


@pytest.mark.parametrize("deferrable", ["1", "0"], ids=["deferrable", "on the worker"])
def test_a_run_ends_with_the_model_before_it(airflow, tmp_path, unique, deferrable):
    output, tasks, _ = run_dag(airflow, "promoted", FOLDER=str(tmp_path), SERVICE=unique, DEFERRABLE=deferrable)
    states = {name: state for name, (state, _) in tasks.items()}
    assert states == {"first": "success", "second": "success", "bad": "failed", "undo": "success"}, output[-6000:]
    assert "s3://models/bad was not promoted: the command ended with code 1" in output
    found = read_xcom("promoted", "return_value", "second")
    assert {name: found[name] for name in ("promoted", "model", "before", "reason")} == {
        "promoted": True,
        "model": "s3://models/b",
        "before": "s3://models/a",
        "reason": "",
    }
    undone = read_xcom("promoted", "return_value", "undo")
    assert (undone["rolled_back"], undone["model"], undone["before"]) == (True, "", "s3://models/b")
    assert (tmp_path / "served").read_text() == ""  # both promotions of the run are undone


def test_wrong_arguments_are_refused_when_the_dag_is_parsed():
    with pytest.raises(InvalidSpec, match="service is required: name what serves the model"):
        RollbackOperator(task_id="t")
    with pytest.raises(InvalidSpec, match="function cannot be 'x = 1': it must be the text of one function"):
        PromoteOperator(task_id="t", model="s3://models/a", service="tickets", function="x = 1")
    with pytest.raises(InvalidSpec, match=r"smoke_request\.uri: there is no field 'uri' in SmokeRequest"):
        PromoteOperator(task_id="t", model="s3://models/a", service="tickets", smoke_request={"uri": "/v1"})
    templated = PromoteOperator(task_id="t", model="{{ params.model }}", service="tickets")
    assert "function" not in templated.template_fields
