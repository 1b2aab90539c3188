"""DAGs with a training whose last rank fails; the name of a DAG has the fault and the number of ranks."""

from __future__ import annotations

from airflow.sdk import DAG

from tests.support.gloo_faults import CATEGORIES, train
from trainjob import CustomTrainer, Watchdog
from trainjob_airflow import TrainJobOperator

for fault in CATEGORIES:
    for per_node in (1, 2):
        with DAG(f"{fault}-{2 * per_node}", schedule=None):
            TrainJobOperator(
                task_id="train",
                trainer=CustomTrainer(func=train, func_args={"fault": fault}, num_nodes=2, num_proc_per_node=per_node),
                watchdog=Watchdog(silence="5s", action="fail"),
                retries=0,
            )
