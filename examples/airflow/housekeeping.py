"""Delete the TrainJobs that are not needed any more, every 15 minutes.

The sweep deletes a finished TrainJob after its own lifetime (`ttl_after_success`, `ttl_after_failure`), or after a
week. It ends an unfinished TrainJob if its task has ended without ending the TrainJob. It retains a model that was not
exported.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import dag

from trainjob_airflow import TrainJobSweepOperator


@dag(schedule=timedelta(minutes=15), catchup=False, max_active_runs=1, doc_md=__doc__)
def housekeeping():
    TrainJobSweepOperator(task_id="sweep", finished_for=timedelta(days=7), retries=2)


housekeeping()
