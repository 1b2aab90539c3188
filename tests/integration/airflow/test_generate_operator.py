"""Tests of the operator that generates answers for rows: arguments, and values of the XCom."""

from __future__ import annotations

import pytest

from trainjob import InvalidSpec
from trainjob.status import Category, Outcome, Phase, parse_step_result
from trainjob_airflow import GenerateOperator

LINE = (
    'generate: done {"rows": 3, "shards": 1, "tokens": 12, "seconds": 0.5, "tokens_per_second": 24.0, '
    '"output": "/workspace/generated/generated.jsonl"}'
)


def test_arguments_may_have_templates_and_are_checked_when_the_dag_is_parsed():
    fields = {"input_path": "dataset/{{ params.day }}", "num_nodes": "{{ params.nodes }}", "resources": {"gpu": 1}}
    operator = GenerateOperator(task_id="t", workspace="w", generation={"max_new_tokens": 64}, **fields)
    operator.render_template_fields({"params": {"day": "monday", "nodes": 4}})
    step = operator._build_step("w")
    assert (step.input_path, step.num_nodes, step.generation) == ("dataset/monday", 4, {"max_new_tokens": 64})
    with pytest.raises(InvalidSpec, match="needs an image with vLLM"):
        GenerateOperator(task_id="t", workspace="w", input_path="dataset", engine="vllm")
    with pytest.raises(InvalidSpec, match="did you mean input_path"):
        GenerateOperator(task_id="t", workspace="w", input_path="dataset", dataset_path="dataset")


def test_the_xcom_has_the_numbers_of_all_nodes():
    operator = GenerateOperator(task_id="t", workspace="w", input_path="dataset")
    outcome = Outcome("job", "ns", "uid-1", Phase.COMPLETE, Category.SUCCEEDED)
    result = parse_step_result(LINE)
    assert operator.extra_values(outcome, result) == result
    assert operator.extra_values(outcome, {}) == {}
