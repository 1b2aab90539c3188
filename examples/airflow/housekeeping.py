"""Every quarter of an hour, delete the TrainJobs that nobody needs any more.

Those that have ended go when their own time to live is over (`ttl_after_success`, `ttl_after_failure`), or after a
week; those at work when their task has ended and nobody could tell them. A model that nobody has exported stays.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import dag

from trainjob_airflow import TrainJobSweepOperator


@dag(schedule=timedelta(minutes=15), catchup=False, max_active_runs=1, doc_md=__doc__)
def housekeeping():
    TrainJobSweepOperator(task_id="sweep", finished_for=timedelta(days=7), retries=2)


housekeeping()
