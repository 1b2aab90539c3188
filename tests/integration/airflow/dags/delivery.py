"""A task whose success Airflow does not store.

`LOST=kill` kills its process after the TrainJob is complete. `LOST=fail` sets the task's state to failed at that
moment, as the scheduler does if it mistakes the end of an earlier process for that of this one. Airflow then refuses
the success.
"""

import os
import signal
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG

from trainjob import CustomTrainerContainer
from trainjob_airflow import TrainJobOperator


class LostOperator(TrainJobOperator):
    def extra_values(self, outcome, step_result):
        if os.environ.get("LOST") == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if os.environ.get("LOST") == "fail":
            with closing(sqlite3.connect(Path(os.environ["AIRFLOW_HOME"], "airflow.db"))) as database, database:
                database.execute("update task_instance set state = 'failed' where dag_id = 'delivery'")
        return super().extra_values(outcome, step_result)


with DAG("delivery", schedule=None):
    LostOperator(
        task_id="train",
        trainer=CustomTrainerContainer(
            image="busybox",
            command=["echo", "trained"],
            resources_per_node={"memory": os.environ.get("MEMORY", "64Mi")},
        ),
        deferrable=os.environ.get("DEFERRABLE") == "1",
        retries=1,
        retry_delay=timedelta(seconds=1),
    )
