"""DAGs for decisions of users about many tasks, whose containers run until they are deleted.

The run's conf has the folder of the files as `go`.
"""

from __future__ import annotations

import time
from pathlib import Path

from airflow.sdk import dag, get_current_context, task

from trainjob_airflow import TrainJobOperator

TASKS = 20
TRAINER = {"image": "busybox", "command": ["sh", "-c", "while true; do sleep 1; done"]}


@dag(schedule=None, catchup=False)
def mapped():
    TrainJobOperator.partial(task_id="task").expand(trainer=[TRAINER] * TASKS)


@dag(schedule=None, catchup=False)
def mapped_after_upstream():
    @task
    def upstream():
        """Run until the file `upstream` exists."""
        file = Path(get_current_context()["dag_run"].conf["go"]) / "upstream"
        while not file.exists():
            time.sleep(0.2)

    upstream() >> TrainJobOperator.partial(task_id="task").expand(trainer=[TRAINER] * TASKS)


mapped()
mapped_after_upstream()
