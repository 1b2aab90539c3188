"""Let a person decide between the evaluation and the release of a model.

The run waits at `approve` until somebody presses Approve or Reject under Required Actions in Airflow's UI, and occupies
no worker meanwhile. The question shows the score. After Reject, or after two days, `release` is skipped or fails.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import dag

from trainjob_airflow import TrainJobOperator

IMAGE = "busybox:1.36"


@dag(schedule=None, default_args={"retries": 2}, doc_md=__doc__)
def approval():
    evaluate = TrainJobOperator(
        task_id="evaluate",
        trainer={"image": IMAGE, "command": ["sh", "-c", "echo 'trainjob result: {\"exact_match\": 0.93}'"]},
    )
    approve = ApprovalOperator(
        task_id="approve",
        subject="Release the model of {{ run_id }}?",
        body="Exact match: {{ ti.xcom_pull(task_ids='evaluate')['result']['exact_match'] }}",
        response_timeout=timedelta(days=2),
    )
    release = TrainJobOperator(task_id="release", trainer={"image": IMAGE, "command": ["echo", "released"]})
    evaluate >> approve >> release


approval()
