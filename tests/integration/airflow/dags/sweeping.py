"""A sweep of three mapped tasks, of which the last one fails."""

from __future__ import annotations

from airflow.sdk import dag

from trainjob_airflow import TrainJobOperator

SCRIPT = """
echo 'tracking: run https://mlflow.example/runs/'$RATE
echo 'epochs: 1'
printf '1|10|Loss: 1.%s:  100%%|##| 10/10 [x\\n' "${RATE#0.}"
[ "$RATE" != 0.3 ]
"""


@dag(schedule=None, catchup=False)
def sweeping():
    env = {"MY_PROXY": "not-a-secret-of-ours"}
    trainer = {"image": "busybox", "command": ["sh", "-c", SCRIPT]}
    TrainJobOperator.partial(task_id="tune").expand(
        trainer=[{**trainer, "env": {**env, "RATE": rate}} for rate in ("0.1", "0.2", "0.3")]
    )


sweeping()
