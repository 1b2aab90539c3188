"""DAGs with as many deferred tasks as the run's conf `count` says."""

from __future__ import annotations

from airflow.sdk import dag, task

from trainjob_airflow import TrainJobOperator


@dag(schedule=None, catchup=False, max_active_tasks=64)
def crowd():
    @task
    def list_trainers(**context):
        return [{"image": "busybox", "command": ["sleep", "3600"]}] * context["dag_run"].conf["count"]

    TrainJobOperator.partial(task_id="task", retries=0).expand(trainer=list_trainers())


@dag(schedule=None, catchup=False)
def waiting_crowd():
    @task
    def list_trainers(**context):
        return [{"image": "busybox", "command": ["sleep", "3600"]}] * context["dag_run"].conf["count"]

    # No worker gets tasks whose pool does not exist.
    TrainJobOperator.partial(task_id="task", retries=0, pool="missing").expand(trainer=list_trainers())


crowd()
waiting_crowd()
