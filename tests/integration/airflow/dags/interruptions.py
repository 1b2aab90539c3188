"""A task whose TrainJob runs until the file GO exists, and whose pods a test evicts before that."""

from __future__ import annotations

import os
from datetime import timedelta

from airflow.sdk import dag

from trainjob_airflow import TrainJobOperator

GO, CODE = os.environ.get("GO", ""), os.environ.get("CODE", "0")
SCRIPT = f"until [ -e {GO} ]; do sleep 0.1; done; echo finished; exit {CODE}"


@dag(schedule=None, catchup=False)
def interruptions():
    TrainJobOperator(
        task_id="train",
        trainer={"image": "busybox", "command": ["sh", "-c", SCRIPT]},
        deferrable=os.environ.get("DEFERRABLE") == "1",
        interruption_retries=int(os.environ.get("BUDGET", "3")),
        on_failure=os.environ.get("ON_FAILURE", "delete"),
        retries=int(os.environ.get("RETRIES", "0")),
        retry_delay=timedelta(0),
    )


interruptions()
