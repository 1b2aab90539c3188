"""A chain whose last task needs a logical date, which manual runs without one do not have."""

from __future__ import annotations

from airflow.sdk import dag

from trainjob_airflow import ExportModelOperator, TrainJobOperator, Workspace


@dag(schedule=None, catchup=False)
def dateless():
    with Workspace(size="1Gi") as workspace:
        train = TrainJobOperator(
            task_id="train", trainer={"image": "busybox", "command": ["true"]}, workspace=workspace
        )
        train >> ExportModelOperator(task_id="export", workspace=workspace, destination="/workspace/{{ ds }}")


dateless()
