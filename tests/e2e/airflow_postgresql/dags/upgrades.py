"""A DAG whose tasks have one try only: each error that another version of the provider causes fails them."""

from __future__ import annotations

from airflow.sdk import dag

from trainjob_airflow import TrainJobOperator, TrainJobSensor

GO = "{{ dag_run.conf['go'] }}"
TRAINER = {"image": "busybox", "command": ["sh", "-c", f"while [ ! -e {GO}/task ]; do sleep 0.2; done"]}


@dag(schedule=None, catchup=False, default_args={"retries": 0})
def upgraded():
    TrainJobOperator(task_id="task", trainer=TRAINER)
    TrainJobOperator(task_id="other", trainer=TRAINER)
    key = {"workflow": "upgraded", "task": "task", "run": "{{ run_id }}"}
    TrainJobSensor(task_id="sensor", run_key=key, deferrable=True)


upgraded()
