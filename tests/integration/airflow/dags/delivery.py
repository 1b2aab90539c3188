"""A task whose process can be killed after its TrainJob is complete, before Airflow stores the end of the task."""

import os
import signal
from datetime import timedelta

from airflow.sdk import DAG

from trainjob import CustomTrainerContainer
from trainjob_airflow import TrainJobOperator


class KilledOperator(TrainJobOperator):
    def extra_values(self, outcome, step_result):
        if os.environ.get("KILL"):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().extra_values(outcome, step_result)


with DAG("delivery", schedule=None):
    KilledOperator(
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
