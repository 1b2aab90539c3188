"""Tasks whose jobs print numbered lines until a file exists in the folder `go` of the run's conf."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import dag

from trainjob_airflow import TrainJobOperator

GO = "{{ dag_run.conf['go'] }}"
COUNT = f"n=0; while [ ! -e {GO}/numbered ]; do n=$((n + 1)); echo line $n; sleep 0.5; done; echo last $n"
TRAINER = {"image": "busybox", "command": ["sh", "-c", COUNT], "num_nodes": 2}


@dag(schedule=None, catchup=False)
def numbered():
    for name in ("one", "two", "three"):
        TrainJobOperator(task_id=name, trainer=TRAINER)


@dag(schedule=None, catchup=False)
def numbered_on_worker():
    TrainJobOperator(task_id="task", trainer=TRAINER, deferrable=False, retries=3, retry_delay=timedelta(seconds=1))


numbered()
numbered_on_worker()
