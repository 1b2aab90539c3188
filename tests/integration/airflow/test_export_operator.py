"""Tests of the export operator: the export of an adapter, and models of other DAG runs."""

from __future__ import annotations

import json

import pytest

from tests.integration.airflow.airflow_runs import run_dag
from tests.support.export_runs import make_model, make_trl_run
from trainjob import InvalidSpec
from trainjob.manifest import build_trainjob, to_trainjob
from trainjob_airflow import ExportModelOperator


def build_arguments(**arguments):
    operator = ExportModelOperator(task_id="t", workspace="w", destination="s3://models/tickets", **arguments)
    operator.render_template_fields({"params": {"adapter": "keep", "job": "tune-11111111"}})
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
    with pytest.raises(InvalidSpec, match="adapter cannot be 'none': it must be 'merge' or 'keep'"):
        ExportModelOperator(task_id="t", workspace="w", destination="s3://models/tickets", adapter="none")


def test_a_named_trainjob_and_any_run_reach_the_export_program():
    assert build_arguments(after_jobs=["{{ params.job }}"])[-2:] == ["--after-job", "tune-11111111"]
    assert build_arguments(any_run=True)[-1] == "--any-run"
    with pytest.raises(InvalidSpec, match=r"after_jobs\[0\] cannot be .* it must be the name of a TrainJob"):
        ExportModelOperator(task_id="t", workspace="w", destination="s3://models/tickets", after_jobs=["--any-run"])


def test_a_registry_of_mlflow_may_have_templates():
    registry = {"backend": "mlflow", "tracking_uri": "https://mlflow", "model": "tickets", "alias": "{{ params.job }}"}
    arguments = build_arguments(registry=registry)
    entry = json.loads(arguments[arguments.index("--registry") + 1])
    assert entry == {**registry, "alias": "tune-11111111", "uri": "s3://models/tickets"}
    with pytest.raises(InvalidSpec, match=r"registry\.alias cannot be 'latest'"):
        build_arguments(registry={**registry, "alias": "latest"})


@pytest.mark.slow
def test_a_checkpoint_of_another_dag_run_is_exported_only_if_it_is_named(airflow, tmp_path):
    make_model(tmp_path / "model")
    make_trl_run(tmp_path / "output", trained_by="tune-11111111", workflow_run="airflow/exported/manual__1")
    output, tasks, _ = run_dag(airflow, "exported", TRAINED_FOLDER=str(tmp_path))
    states = {name: state for name, (state, _) in tasks.items()}
    assert states == {"own": "failed", "linked": "success", "anyone": "success"}, output[-4000:]
    assert "is of TrainJob tune-11111111, run airflow/exported/manual__1, not of this run, airflow/exported/" in output
    assert {path.parent.name for path in tmp_path.glob("*/manifest.json")} == {"linked", "anyone"}
