"""Tasks whose connection is in the run's conf; their containers run until the file `task` exists."""

from __future__ import annotations

from airflow.sdk import dag

from trainjob_airflow import TrainJobOperator

TRAINER = {
    "image": "busybox",
    "command": ["sh", "-c", "while [ ! -e {{ dag_run.conf['go'] }}/task ]; do sleep 0.2; done"],
}


class TeamOperator(TrainJobOperator):
    """An operator whose connection is a template."""

    template_fields = (*TrainJobOperator.template_fields, "kubernetes_conn_id")


@dag(schedule=None, catchup=False)
def team():
    connection = "{{ dag_run.conf['connection'] }}"
    TeamOperator(task_id="deferred", trainer=TRAINER, kubernetes_conn_id=connection, retries=0)
    TeamOperator(task_id="on_worker", trainer=TRAINER, kubernetes_conn_id=connection, deferrable=False, retries=0)


team()
