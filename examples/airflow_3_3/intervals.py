"""Train on the data of each day, repeat earlier days in a queue of low priority, and send an alert about a late run.

A run trains on its data interval: the day that has just ended. `airflow backfill create` repeats earlier days; the
trainings of these runs have a lower priority in the queue than those of tonight. If a run has not ended 6 hours after
it was queued, Airflow calls `report_late_run` in a triggerer, which must find the module. The run itself continues.

`team` is a LocalQueue in the TrainJobs' namespace; `nightly` and `backfill` are WorkloadPriorityClasses of the cluster.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from airflow.sdk import AsyncCallback, CronDataIntervalTimetable, DeadlineAlert, DeadlineReference, dag
from late_runs import report_late_run

from trainjob_airflow import TrainJobOperator

PRIORITY = "{{ 'backfill' if dag_run.run_type == 'backfill' else 'nightly' }}"


@dag(
    schedule=CronDataIntervalTimetable("0 2 * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=3,
    default_args={"retries": 2},
    deadline=DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=timedelta(hours=6),
        callback=AsyncCallback(report_late_run),
    ),
    doc_md=__doc__,
)
def intervals():
    TrainJobOperator(
        task_id="train",
        trainer={
            "image": "busybox:1.36",
            "command": ["sh", "-c"],
            "args": ["echo rows from {{ data_interval_start | ts }} to {{ data_interval_end | ts }}"],
        },
        queue_name={"name": "team", "priority_class": PRIORITY},
    )


intervals()
