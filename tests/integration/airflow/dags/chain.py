"""A chain with plain commands instead of trainings; MARK distinguishes two runs of it."""

from __future__ import annotations

import os

from airflow.sdk import dag

from trainjob import CustomTrainerContainer
from trainjob_airflow import TrainJobOperator, Workspace

MARK = os.environ.get("MARK", "")


def shell(script):
    return CustomTrainerContainer(image="busybox", command=["sh", "-c", script])


@dag(schedule=None, catchup=False)
def chain():
    with Workspace(size="1Gi") as workspace:
        first = TrainJobOperator(
            task_id="first",
            workspace=workspace,
            trainer=shell(f"echo {MARK} > /workspace/mark; echo written"),
        )
        second = TrainJobOperator(
            task_id="second",
            workspace=workspace,
            deferrable=False,
            trainer=shell("echo read $(cat /workspace/mark)"),
        )
        first >> second


@dag(schedule=None, catchup=False)
def failing():
    with Workspace(size="1Gi") as workspace:
        broken = TrainJobOperator(
            task_id="broken",
            workspace=workspace,
            trainer=shell("echo about to fail; echo 'ValueError: row 7' >&2; exit 3"),
        )
        never = TrainJobOperator(task_id="never", workspace=workspace, trainer=shell("echo never"))
        broken >> never


@dag(schedule=None, catchup=False)
def slow():
    """Run until the file GO exists."""
    go = os.environ.get("GO", "")
    TrainJobOperator(
        task_id="slow", trainer=shell(f"echo started; while [ ! -e {go} ]; do sleep 0.1; done; echo finished")
    )


chain()
failing()
slow()
