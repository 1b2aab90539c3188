"""Tasks whose jobs print numbered lines until a file exists in the folder `go` of the run's conf."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from trainjob_airflow import TrainJobOperator

GO = "{{ dag_run.conf['go'] }}"
COUNT = f"n=0; while [ ! -e {GO}/numbered ]; do n=$((n + 1)); echo line $n; sleep 0.5; done; echo last $n"
TRAINER = {"image": "busybox", "command": ["sh", "-c", COUNT], "num_nodes": 2}

with DAG("numbered", schedule=None, catchup=False):
    for name in ("one", "two", "three"):
        TrainJobOperator(task_id=name, trainer=TRAINER)

with DAG("numbered_on_worker", schedule=None, catchup=False):
    TrainJobOperator(task_id="task", trainer=TRAINER, deferrable=False, retries=3, retry_delay=timedelta(seconds=1))
