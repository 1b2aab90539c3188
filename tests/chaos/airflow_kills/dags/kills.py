"""Tasks that stay in one phase until a file with their name exists.

The run's conf has the folder of these files as `go`.
"""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG

from trainjob_airflow import TrainJobOperator, TrainJobSweepOperator

GO = "{{ dag_run.conf['go'] }}"
RETRIES = {"retries": 3, "retry_delay": timedelta(seconds=1)}


def trainer_until(name):
    """Return a trainer whose container runs until the file exists."""
    return {"image": "busybox", "command": ["sh", "-c", f"while [ ! -e {GO}/{name} ]; do sleep 0.2; done"]}


class HeldOperator(TrainJobOperator):
    """An operator whose task waits on its worker after its return from the triggerer."""

    def execute_complete(self, context, event=None, **kept):
        folder = Path(context["dag_run"].conf["go"])
        (folder / f"{self.task_id}.waits").touch()
        while not (folder / self.task_id).exists():
            time.sleep(0.2)
        return super().execute_complete(context, event, **kept)


def add_task(name, ends="", operator=TrainJobOperator, **options):
    """Add a task whose container runs until a file exists, by default one with its name."""
    operator(task_id=name, trainer=trainer_until(ends or name), **{**RETRIES, **options})


with DAG("phases", schedule=None, catchup=False):
    add_task("creating")
    add_task("deferred")
    add_task("resumed", "resumed.ends", HeldOperator)
    add_task("on_worker", deferrable=False)

with DAG("deferred", schedule=None, catchup=False):
    add_task("task")

with DAG("undelivered", schedule=None, catchup=False):
    trainer = trainer_until("task.ends") | {"resources_per_node": {"memory": "64Mi"}}
    HeldOperator(task_id="task", trainer=trainer, retries=0)

with DAG("on_worker", schedule=None, catchup=False):
    add_task("task", deferrable=False)

with DAG("creating", schedule=None, catchup=False):
    add_task("creating")

with DAG("ended", schedule=None, catchup=False):
    add_task("ended", "ended.ends")  # its trigger does not fire in its first seconds

with DAG("late", schedule=None, catchup=False):
    add_task("late")

with DAG("sweeping", schedule=None, catchup=False):
    TrainJobSweepOperator(task_id="sweep", active_for=timedelta(0))
