"""Tasks with a retry policy."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule, dag

from trainjob_airflow import TrainJobOperator


@dag(schedule=None, catchup=False, default_args={"retries": 2, "retry_delay": timedelta(0)})
def by_policy():
    broken = {"image": "busybox", "command": ["sh", "-c", "exit 3"]}
    fail_rule = RetryRule(exception="trainjob.CommandFailed", action=RetryAction.FAIL)
    TrainJobOperator(task_id="not_retried", trainer=broken, retry_policy=ExceptionRetryPolicy([fail_rule]))
    memory_rule = RetryRule(exception="trainjob.OutOfMemory", action=RetryAction.FAIL)
    TrainJobOperator(task_id="retried", trainer=broken, retries=1, retry_policy=ExceptionRetryPolicy([memory_rule]))
    TrainJobOperator(
        task_id="on_worker", trainer=broken, deferrable=False, retry_policy=ExceptionRetryPolicy([fail_rule])
    )


by_policy()
