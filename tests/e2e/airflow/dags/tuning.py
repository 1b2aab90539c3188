"""A task whose log has TorchTune's format and HTML tags; it continues when a file exists."""

from __future__ import annotations

from airflow.sdk import dag

from trainjob_airflow import TrainJobOperator

SCRIPT = """
echo 'epochs: 2'
echo '<img src=x onerror="document.title=1"> is a line of this log'
frames() {
  awk -v from=$1 -v to=$2 'BEGIN { for (n = from; n <= to; n++) {
    loss = 0.6 + 3.4 * exp(-n / 22) + 0.12 * sin(n * 1.7) + 0.06 * sin(n * 5.1)
    printf("%d|%d|Loss: %.4f: 10%%|##| %d/60 [00:01<00:09]\\r", (n > 60 ? 2 : 1), n, loss, (n > 60 ? n - 60 : n))
  } print "" }'
}
frames 1 40
echo 'saved recipe state after step 40'
while [ ! -e {{ dag_run.conf['go'] }} ]; do sleep 0.2; done
frames 41 80
echo 'saved recipe state after step 80'
while [ ! -e {{ dag_run.conf['end'] }} ]; do sleep 0.2; done
"""


@dag(schedule=None, catchup=False)
def tuning():
    trainer = {"image": "busybox", "command": ["sh", "-c", SCRIPT]}
    TrainJobOperator(task_id="fine_tune", trainer=trainer)


tuning()
