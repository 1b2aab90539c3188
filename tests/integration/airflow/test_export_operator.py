"""Tests of the export operator without a cluster: the export of an adapter."""

from __future__ import annotations

import pytest

from trainjob import InvalidSpec
from trainjob.manifest import build_trainjob, to_trainjob
from trainjob_airflow import ExportModelOperator


def build_arguments(**arguments):
    operator = ExportModelOperator(task_id="t", workspace="w", destination="s3://models/tickets", **arguments)
    operator.render_template_fields({"params": {"adapter": "keep"}})
    return build_trainjob(to_trainjob(operator._build_step("w")), name="n", namespace="ns")["spec"]["trainer"]["args"]


@pytest.mark.parametrize("adapter", ["keep", "{{ params.adapter }}"])
def test_an_adapter_to_keep_reaches_the_export_program(adapter):
    arguments = build_arguments(adapter=adapter)
    assert arguments[arguments.index("--adapter") + 1] == "keep"


@pytest.mark.parametrize("given", [{}, {"adapter": None}, {"adapter": "merge"}])
def test_the_default_adds_no_argument(given):
    assert build_arguments(**given) == build_arguments()
    assert "--adapter" not in build_arguments(**given)


def test_another_value_is_refused_when_the_dag_is_parsed():
    with pytest.raises(InvalidSpec, match="adapter: 'none' is not allowed; input should be 'merge' or 'keep'"):
        ExportModelOperator(task_id="t", workspace="w", destination="s3://models/tickets", adapter="none")
