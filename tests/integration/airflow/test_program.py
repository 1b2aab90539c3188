"""Tests of operators whose programs are in the image of the step, without a cluster."""

from __future__ import annotations

import pytest

from trainjob import InvalidSpec
from trainjob.manifest import spec_hash, to_trainjob
from trainjob_airflow import ExportModelOperator, FineTuneOperator, InitializeDatasetOperator, InitializeModelOperator

IMAGE = "registry.example/steps:1"
OPERATORS = {
    InitializeDatasetOperator: {"storage_uri": "hf://acme/tickets"},
    InitializeModelOperator: {"storage_uri": "hf://acme/llama"},
    FineTuneOperator: {"model": "llama3.2-1b", "config": {"framework": "torchtune"}},
    ExportModelOperator: {"destination": "s3://models/tickets"},
}


def build_step(operator_class, **arguments):
    operator = operator_class(task_id="t", workspace="w", **OPERATORS[operator_class], **arguments)
    operator.render_template_fields({"params": {"program": "image"}})
    return operator._build_step("w")


@pytest.mark.parametrize("operator_class", OPERATORS)
@pytest.mark.parametrize("program", ["image", "{{ params.program }}"])
def test_the_program_of_the_image_runs_with_readable_arguments(operator_class, program):
    trainer = to_trainjob(build_step(operator_class, program=program, image=IMAGE), run="run-1").trainer
    assert trainer.image == IMAGE
    assert trainer.command[:2] == ("python", "-m")
    assert max(map(len, (*trainer.command, *trainer.args))) < 100


@pytest.mark.parametrize("operator_class", OPERATORS)
def test_the_default_is_a_packed_program_of_the_same_request(operator_class):
    packed = build_step(operator_class, image=IMAGE)
    assert packed == build_step(operator_class, image=IMAGE, program="packed")
    assert spec_hash(packed) == spec_hash(build_step(operator_class, image=IMAGE, program="image"))


@pytest.mark.parametrize("operator_class", OPERATORS)
def test_a_missing_image_is_refused_when_the_dag_is_parsed(operator_class):
    with pytest.raises(InvalidSpec, match="image is required: program='image' runs the code of the image"):
        operator_class(task_id="t", workspace="w", program="image", **OPERATORS[operator_class])


@pytest.mark.parametrize("operator_class", OPERATORS)
def test_rendered_fields_contain_no_packed_code(operator_class):
    operator = operator_class(task_id="t", workspace="w", **OPERATORS[operator_class])
    rendered = {name: str(getattr(operator, name)) for name in operator.template_fields}
    assert max(map(len, rendered.values())) < 1_000
