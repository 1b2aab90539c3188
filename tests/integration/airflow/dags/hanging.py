"""A task whose training hangs in its first attempt, and makes all steps in the next."""

from __future__ import annotations

import os

from airflow.sdk import dag

from trainjob import Watchdog
from trainjob_airflow import TrainJobOperator

TRAINING = """
import os, sys, time
marker = sys.argv[1]
for step in range(1, 4):
    print({"loss": 1 / step, "epoch": step / 3, "step": step, "max_steps": 3, "num_train_epochs": 1}, flush=True)
    if step == 2 and not os.path.exists(marker):
        open(marker, "w").close()
        time.sleep(10_000)
"""


@dag(schedule=None, catchup=False)
def hanging():
    TrainJobOperator(
        task_id="train",
        trainer={"image": "python", "command": ["python", "-c", TRAINING, os.environ.get("MARKER", "")]},
        watchdog=Watchdog(silence="3s", action=os.environ.get("ACTION", "report")),
        deferrable=os.environ.get("DEFERRABLE") == "1",
        retries=0,
    )


hanging()
