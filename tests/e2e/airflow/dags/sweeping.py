"""A sweep of three mapped tasks, and a task whose first try fails."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import dag

from trainjob_airflow import TrainJobOperator

SWEEP = """
echo 'epochs: 1'
printf '1|10|Loss: 0.%s:  100%%|##| 10/10 [x\\n' "${RATE#0.}"
"""


@dag(schedule=None, catchup=False)
def sweeping():
    trainer = {"image": "busybox", "command": ["sh", "-c", SWEEP]}
    TrainJobOperator.partial(task_id="tune").expand(
        trainer=[{**trainer, "env": {"RATE": rate}} for rate in ("0.3", "0.1", "0.2")]
    )
    retried = {"image": "busybox", "command": ["sh", "-c", "[ {{ ti.try_number }} != 1 ]"]}
    TrainJobOperator(task_id="retried", trainer=retried, retries=1, retry_delay=timedelta(seconds=1))


sweeping()
