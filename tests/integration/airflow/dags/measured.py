"""Tasks whose TrainJobs cause each metric: one is restarted in place, one fails, one is refused, one is adopted."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from airflow.sdk import dag

from trainjob_airflow import TrainJobOperator

FOLDER, DEFERRABLE = os.environ.get("FOLDER", ""), os.environ.get("DEFERRABLE") == "1"
FAILED_ONCE = f"sleep 1; test -e {FOLDER}/failed || {{ touch {FOLDER}/failed; exit 3; }}"


class LostOnceOperator(TrainJobOperator):
    """Operator whose first try loses the wait for its TrainJob, which the next try adopts."""

    def _follow(self, *arguments):
        lost = Path(FOLDER, "lost")
        if not lost.exists():
            lost.touch()
            raise OSError("the wait is lost")
        return super()._follow(*arguments)


def shell_trainer(script):
    return {"image": "busybox", "command": ["sh", "-c", script]}


@dag(schedule=None, catchup=False)
def measured():
    TrainJobOperator(
        task_id="restarted",
        trainer={**shell_trainer(FAILED_ONCE), "num_nodes": 1, "resources_per_node": {"gpu": 2}},
        max_restarts=1,
        deferrable=DEFERRABLE,
    )
    TrainJobOperator(task_id="failing", trainer=shell_trainer("exit 3"), deferrable=DEFERRABLE)
    TrainJobOperator(
        task_id="refused", trainer=shell_trainer("exit 0"), runtime="no-such-runtime", deferrable=DEFERRABLE
    )
    LostOnceOperator(
        task_id="adopted",
        trainer=shell_trainer("sleep 1"),
        deferrable=DEFERRABLE,
        retries=1,
        retry_delay=timedelta(0),
    )


measured()
