"""A task whose TrainJob requests four nodes, of which the laptop cluster has memory for two."""

from __future__ import annotations

import os

from airflow.sdk import dag

from trainjob_airflow import TrainJobOperator


@dag(schedule=None, catchup=False)
def elastic():
    TrainJobOperator(
        task_id="train",
        trainer={
            "image": "busybox",
            "command": ["sh", "-c", os.environ.get("SCRIPT", "")],
            "num_nodes": [1, 4],
            "shrink_after": 1,
            "resources_per_node": {"memory": int(os.environ.get("MEMORY", "1"))},
        },
        deferrable=os.environ.get("DEFERRABLE") == "1",
        retries=0,
    )


elastic()
