"""Many concurrent tasks whose jobs run until the test opens the FIFO of the run's conf."""

from __future__ import annotations

from airflow.sdk import dag

from trainjob_airflow import TrainJobOperator

TASKS = 200


@dag(schedule=None, catchup=False, max_active_tasks=TASKS)
def many():
    script = "echo waiting; : < {{ dag_run.conf['gate'] }}; echo"
    trainers = [{"image": "busybox", "command": ["sh", "-c", f"{script} {n}"]} for n in range(TASKS)]
    TrainJobOperator.partial(task_id="train", runtime="torch-distributed").expand(trainer=trainers)


many()
