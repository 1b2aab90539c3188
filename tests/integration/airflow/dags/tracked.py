"""Tracked trainings: a function with MLflow, and containers that log the address of a run."""

from __future__ import annotations

import os

from airflow.sdk import dag, task

from trainjob import CustomTrainerContainer
from trainjob_airflow import TrainJobOperator

URL = "http://mlflow.example/#/experiments/1/runs"
TRACKING = {
    "backend": "mlflow",
    "tracking_uri": os.environ.get("MLFLOW_SERVER", "http://127.0.0.1:9"),
    "parameters": {"learning_rate": 0.5, "dataset": "tickets/{{ ti.task_id }}"},
}


@dag(schedule=None, catchup=False)
def logged():
    def run(task_id, deferrable, *, exit_code=0):
        script = f"echo 'tracking: run {URL}/{task_id}'; exit {exit_code}"
        trainer = CustomTrainerContainer(image="busybox", command=["sh", "-c", script])
        return TrainJobOperator(task_id=task_id, trainer=trainer, deferrable=deferrable)

    run("on_worker", deferrable=False) >> run("deferred", deferrable=True) >> run("failed", True, exit_code=3)


@dag(schedule=None, catchup=False)
def tracked():
    env = {"TRAINJOB_TRACKING_PYTHON": os.environ.get("TRACKING_PYTHON", "")}

    @task.trainjob(env=env, tracking=TRACKING)
    def train():
        for step in (1, 2, 3):
            print(f"Step {step} | loss:{1 / step} accuracy:{1 - 1 / step}", flush=True)

    train()


logged()
tracked()
