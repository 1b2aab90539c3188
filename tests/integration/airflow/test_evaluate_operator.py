"""Tests of the operator that evaluates a model: arguments, result, and the tasks after a failed gate."""

from __future__ import annotations

import json

import pytest

from tests.integration.airflow.airflow_runs import read_xcom, run_dag
from trainjob import InvalidSpec
from trainjob_airflow import EvaluateOperator

GATES = [
    {"metric": "tickets/acc", "rule": "minimum 0.9", "passed": True, "found": "0.95"},
    {"metric": "tickets/acc", "rule": "better than the champion", "passed": True, "found": "better by 0.1"},
]


@pytest.mark.parametrize("deferrable", ["1", "0"], ids=["deferrable", "on the worker"])
def test_a_failed_gate_skips_the_next_tasks_and_is_no_error(airflow, tmp_path, deferrable):
    report = {"passed": True, "scores": {"tickets/acc": {"value": 0.95}}, "gates": GATES, "report": "/workspace/r"}
    failed = {**report, "passed": False, "gates": [GATES[0], {**GATES[1], "passed": False}]}
    for name, result in (("passed", report), ("failed", failed)):
        (tmp_path / f"{name}.log").write_text(f"evaluate: model, task 1 of 1\nevaluate: done {json.dumps(result)}\n")
    (tmp_path / "lost.log").write_text("evaluate: model, task 1 of 1\n")
    output, tasks, _ = run_dag(airflow, "gated", FOLDER=str(tmp_path), DEFERRABLE=deferrable)
    states = {name: state for name, (state, _) in tasks.items()}
    others = {
        **dict.fromkeys(("failed_promote", "failed_serve"), "skipped"),
        "lost": "failed",  # without a result nothing shows that the model has passed
        **dict.fromkeys(("lost_promote", "lost_serve"), "upstream_failed"),
    }
    assert states == {name: others.get(name, "success") for name in tasks}, output[-4000:]
    assert len(states) == 16
    assert "has no result, so its gates can't be applied" in output
    assert "gate failed: tickets/acc: better than the champion: better by 0.1" in output
    for task, result in (("passed", report), ("failed", failed), ("decided_later", failed)):
        found = read_xcom("gated", "return_value", task)
        assert {name: found[name] for name in result} == result
        assert found["phase"] == "Complete"
        assert "| `tickets/acc` | 0.95 | - | - |" in found["summary"]


def test_gates_may_have_templates_and_are_checked_when_the_dag_is_parsed():
    gates = {"tickets/acc": {"minimum": "{{ params.least }}"}}
    operator = EvaluateOperator(task_id="t", workspace="w", tasks=["tickets"], gates=gates)
    operator.render_template_fields({"params": {"least": 0.5}})
    assert operator._build_step("w").gates["tickets/acc"].minimum == 0.5
    with pytest.raises(InvalidSpec, match=r"gates\.tickets/acc\.least: there is no field 'least' in Gate"):
        EvaluateOperator(task_id="t", workspace="w", tasks=["tickets"], gates={"tickets/acc": {"least": 1}})
    with pytest.raises(InvalidSpec, match="did you mean generation"):
        EvaluateOperator(task_id="t", workspace="w", tasks=["tickets"], gen_kwargs={})


def score(model_path):
    return {"length": len(model_path)}


def test_a_function_reaches_the_step_and_is_no_template():
    gates = {"score/length": {"minimum": "{{ params.least }}"}}
    operator = EvaluateOperator(task_id="t", workspace="w", function=score, gates=gates)
    operator.render_template_fields({"params": {"least": 0.5}})  # Airflow calls functions in template fields
    assert operator._build_step("w").function is score
    with pytest.raises(InvalidSpec, match="must be a plain function"):
        EvaluateOperator(task_id="t", workspace="w", function=lambda path: {"length": len(path)})
