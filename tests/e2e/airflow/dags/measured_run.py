"""A task whose TrainJob exceeds the triggerer's log limits, and runs until the file of the run's conf exists."""

from __future__ import annotations

from airflow.sdk import dag

from trainjob_airflow import TrainJobOperator

SCRIPT = (
    "seq -f '%099.0f' {{ dag_run.conf['lines'] }}; while [ ! -e {{ dag_run.conf['go'] }} ]; do sleep 0.2; done; sleep 1"
)


@dag(schedule=None, catchup=False)
def measured_run():
    TrainJobOperator(task_id="train", trainer={"image": "busybox", "command": ["sh", "-c", SCRIPT]})


measured_run()
