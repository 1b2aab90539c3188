"""A task whose TrainJob has a name and labels of its own."""

from __future__ import annotations

from airflow.sdk import dag

from trainjob_airflow import TrainJobOperator


@dag(schedule=None, catchup=False, params={"team": "nlp"})
def labelled():
    TrainJobOperator(
        task_id="train",
        name="tuning",
        labels={"example.org/team": "{{ params.team }}"},
        annotations={"example.org/run": "{{ run_id }}"},
        trainer={"image": "busybox", "command": ["true"]},
    )


labelled()
