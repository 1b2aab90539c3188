"""Train on each partition of an asset: one run for each day of tickets, with the day as its partition key.

`collect_tickets` runs every night for the day that has ended, and updates this day's partition of the asset. Airflow
then starts `train_on_a_day` with the same partition key. A run without a key, such as a manual one, trains on all
tickets. These runs have no logical date, so templates such as `ds` do not exist in them.
"""

from __future__ import annotations

from datetime import datetime, timezone

from airflow.sdk import Asset, CronPartitionTimetable, PartitionedAssetTimetable, dag, task

from trainjob_airflow import TrainJobOperator

TICKETS = Asset("tickets_by_day")


@dag(
    schedule=CronPartitionTimetable("0 1 * * *", timezone="UTC", run_offset=-1, key_format="%Y-%m-%d"),
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    doc_md="Collect the tickets of a day.",
)
def collect_tickets():
    @task(outlets=[TICKETS])
    def collect(*, dag_run):
        print(f"the tickets of {dag_run.partition_key} are complete")

    collect()


@dag(schedule=PartitionedAssetTimetable(assets=TICKETS), default_args={"retries": 2}, doc_md=__doc__)
def train_on_a_day():
    TrainJobOperator(
        task_id="train",
        labels={"example.org/day": "{{ partition_key or 'all' }}"},
        trainer={
            "image": "busybox:1.36",
            "command": ["sh", "-c"],
            "args": ["echo 'trainjob result: {\"day\": \"{{ partition_key or 'all' }}\"}'"],
        },
    )


collect_tickets()
train_on_a_day()
