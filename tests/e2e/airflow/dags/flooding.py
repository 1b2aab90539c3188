"""A task whose job exceeds the triggerer's log limits, and tasks with one line of output."""

from __future__ import annotations

from airflow.sdk import dag

from trainjob_airflow import TrainJobOperator


def shell_trainer(script):
    return {"image": "busybox", "command": ["sh", "-c", script]}


@dag(schedule=None, catchup=False)
def flooding():
    lines, width = "{{ dag_run.conf['lines'] }}", "{{ dag_run.conf['width'] }}"
    TrainJobOperator(task_id="flood", trainer=shell_trainer(f"seq -f '%0{width}.0f' {lines}; echo last"))
    TrainJobOperator(task_id="unlogged", trainer=shell_trainer(f"seq {lines}; echo last"), get_logs=False)
    for n in range(3):
        TrainJobOperator(task_id=f"quiet_{n}", trainer=shell_trainer("sleep 20; echo quiet"))


flooding()
