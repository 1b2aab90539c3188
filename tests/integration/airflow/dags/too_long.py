"""A task that exceeds its execution timeout."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import dag

from trainjob_airflow import TrainJobOperator


@dag(schedule=None, catchup=False)
def too_long():
    trainer = {"image": "busybox", "command": ["sleep", "600"]}
    TrainJobOperator(
        task_id="train", trainer=trainer, deferrable=False, execution_timeout=timedelta(seconds=15), retries=0
    )


too_long()
