"""Tests of runs without a logical date: a template that needs one is refused at the run's first task."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from airflow.sdk import DAG, task

from trainjob_airflow import ExportModelOperator, TrainJobOperator, Workspace
from trainjob_airflow.operators.later_templates import check_later_templates
from trainjob_airflow.version_compat import AirflowFailException

TRAINER = {"image": "i", "command": ["c"]}
WITH_DATE = {"logical_date": datetime(2026, 11, 29, tzinfo=timezone.utc), "ds": "2026-11-29"}


class PulledResults:
    """Task instance whose earlier tasks have returned nothing."""

    @staticmethod
    def xcom_pull(**_):
        return None


WITHOUT_DATE = {"run_id": "manual__1", "ti": PulledResults()}


def build_chain(destination, **more):
    with DAG("d", params={"bucket": "models"}) as dag:
        with Workspace("1Gi") as workspace:
            train = TrainJobOperator(task_id="train", trainer=TRAINER)
            export = ExportModelOperator(task_id="export", workspace=workspace, destination=destination, **more)
            train >> export
        return dag


@pytest.mark.parametrize("first", ["workspace_create", "train"])
@pytest.mark.parametrize(
    "destination",
    [
        "s3://models/{{ ds }}",
        "s3://models/{{ ds_nodash }}/{{ run_id }}",
        "s3://models/{{ data_interval_start | ds }}",
        "s3://models/{{ logical_date.year }}",
        "s3://{{ ti.xcom_pull(task_ids='x') }}/{{ ts }}",
    ],
)
def test_a_run_without_a_logical_date_is_refused_at_its_first_task(first, destination):
    dag = build_chain(destination)
    with pytest.raises(AirflowFailException, match=r"export\.destination .*run_id, \{\{ dag_run.run_after"):
        check_later_templates(dag.get_task(first), WITHOUT_DATE)
    check_later_templates(dag.get_task(first), WITH_DATE)
    check_later_templates(dag.get_task("export"), WITHOUT_DATE)  # the task itself fails when it is rendered


@pytest.mark.parametrize(
    "destination",
    [
        "s3://models/{{ run_id }}",
        "s3://models/{{ dag_run.run_after | ds }}",
        "s3://models/{{ ds | default('latest') }}",
        "s3://models/{% if ds is defined %}{{ ds }}{% else %}latest{% endif %}",
        "s3://models/{{ params.ds }}",
        "s3://models/{{ nothing }}",
    ],
)
def test_templates_that_need_no_date_are_accepted(destination):
    check_later_templates(build_chain(destination).get_task("train"), WITHOUT_DATE)


def test_mapped_tasks_and_other_operators_are_checked():
    with DAG("d"):
        train = TrainJobOperator(task_id="train", trainer=TRAINER)
        mapped = ExportModelOperator.partial(task_id="export", workspace="w", annotations={"day": "{{ ds }}"})
        train >> mapped.expand(destination=["a", "b"]) >> task.bash(task_id="report")(lambda: "echo")()
    with pytest.raises(AirflowFailException, match=r"export\.annotations \('\{\{ ds \}\}'\)"):
        check_later_templates(train, WITHOUT_DATE)


def test_a_dag_that_renders_undefined_names_as_nothing_is_accepted():
    import jinja2

    with DAG("d", template_undefined=jinja2.Undefined):
        train = TrainJobOperator(task_id="train", trainer=TRAINER)
        train >> ExportModelOperator(task_id="export", workspace="w", destination="s3://m/{{ ds }}")
    check_later_templates(train, WITHOUT_DATE)
