"""Evaluations whose log is given by FOLDER/NAME.log; the tasks after them depend on the gates."""

import os

from airflow.sdk import DAG, task

from trainjob import CustomTrainerContainer
from trainjob_airflow import TrainJobOperator
from trainjob_airflow.operators.step_bases import EvaluationOperator

FOLDER = os.environ.get("FOLDER", "/nowhere")


class ScoredOperator(EvaluationOperator, TrainJobOperator):
    """Evaluation without a model: a TrainJob that prints an evaluation's log."""


@task
def follow():
    print("followed")


with DAG("gated", schedule=None, default_args={"retries": 0, "deferrable": os.environ.get("DEFERRABLE") == "1"}):
    for name, log, more in (
        ("passed", "passed", {}),
        ("failed", "failed", {}),
        ("decided_later", "failed", {"skip_downstream": False}),
        ("lost", "lost", {"skip_downstream": False}),
    ):
        trainer = CustomTrainerContainer(command=("cat", f"{FOLDER}/{log}.log"), num_nodes=1)
        scored = ScoredOperator(task_id=name, trainer=trainer, **more)
        promote = follow.override(task_id=f"{name}_promote")()
        scored >> promote >> follow.override(task_id=f"{name}_serve")()
        scored >> follow.override(task_id=f"{name}_notify", trigger_rule="all_done")()
