"""A task whose training hangs in its first attempt, and makes all steps in the next."""

from __future__ import annotations

import os

from airflow.sdk import dag

from trainjob import Watchdog
from trainjob_airflow import TrainJobOperator

# A container that is restarted in place hangs again.
TRAINING = """
import os, sys, time
from pathlib import Path
marker = Path(sys.argv[1])
for step in range(1, 4):
    print({"loss": 1 / step, "epoch": step / 3, "step": step, "max_steps": 3, "num_train_epochs": 1}, flush=True)
    if step == 2 and (not marker.exists() or marker.read_text() == os.environ["POD"]):
        marker.write_text(os.environ["POD"])
        time.sleep(10_000)
"""


@dag(schedule=None, catchup=False)
def hanging():
    TrainJobOperator(
        task_id="train",
        trainer={
            "image": "python",
            "command": ["python", "-c", TRAINING, os.environ.get("MARKER", "")],
            "env": {"POD": {"fieldRef": {"fieldPath": "metadata.name"}}},
        },
        watchdog=Watchdog(silence="3s", action=os.environ.get("ACTION", "report")),
        deferrable=os.environ.get("DEFERRABLE") == "1",
        retries=0,
    )


hanging()
