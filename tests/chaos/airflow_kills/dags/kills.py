"""Tasks that stay in one phase until a file with their name exists.

The run's conf has the folder of these files as `go`.
"""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

from airflow.sdk import dag

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


@dag(schedule=None, catchup=False)
def phases():
    TrainJobOperator(task_id="creating", trainer=trainer_until("creating"), **RETRIES)
    TrainJobOperator(task_id="deferred", trainer=trainer_until("deferred"), **RETRIES)
    HeldOperator(task_id="resumed", trainer=trainer_until("resumed.ends"), **RETRIES)
    TrainJobOperator(task_id="on_worker", trainer=trainer_until("on_worker"), deferrable=False, **RETRIES)


@dag(schedule=None, catchup=False)
def deferred():
    TrainJobOperator(task_id="task", trainer=trainer_until("task"), **RETRIES)


@dag(schedule=None, catchup=False)
def undelivered():
    trainer = trainer_until("task.ends") | {"resources_per_node": {"memory": "64Mi"}}
    HeldOperator(task_id="task", trainer=trainer, retries=0)


@dag(schedule=None, catchup=False)
def on_worker():
    TrainJobOperator(task_id="task", trainer=trainer_until("task"), deferrable=False, **RETRIES)


@dag(schedule=None, catchup=False)
def creating():
    TrainJobOperator(task_id="creating", trainer=trainer_until("creating"), **RETRIES)


@dag(schedule=None, catchup=False)
def ended():
    """Define a DAG whose trigger does not fire in its first seconds."""
    TrainJobOperator(task_id="ended", trainer=trainer_until("ended.ends"), **RETRIES)


@dag(schedule=None, catchup=False)
def late():
    TrainJobOperator(task_id="late", trainer=trainer_until("late"), **RETRIES)


@dag(schedule=None, catchup=False)
def sweeping():
    TrainJobSweepOperator(task_id="sweep", active_for=timedelta(0))


phases()
deferred()
undelivered()
on_worker()
creating()
ended()
late()
sweeping()
