"""Sensors that start in the triggerer, and a DAG that TrainJobs start.

The run's conf has the names of the TrainJobs.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import Asset, AssetWatcher, dag, task

from trainjob_airflow import TrainJobEventTrigger, TrainJobSensor

NAME = "{{ dag_run.conf['name'] }}"
RETRIES = {"retries": 1, "retry_delay": timedelta(seconds=1), "start_from_trigger": True}
TRIGGER = TrainJobEventTrigger(label_selector="suite=watched")


@dag(schedule=None, catchup=False)
def from_trigger():
    TrainJobSensor(task_id="waits", name=NAME, timeout=300, **RETRIES)
    TrainJobSensor(task_id="too_late", name=f"{NAME}-never", timeout=20, **RETRIES)
    TrainJobSensor(task_id="nonsense", name="{{ dag_run.conf.get('nothing') }}", **RETRIES)
    key = {"workflow": "{{ dag.dag_id }}", "task": "nobody", "run": "{{ run_id }}"}
    TrainJobSensor(task_id="by_run_key", run_key=key, timeout=300, **RETRIES)


@dag(
    schedule=[Asset("x-trainjob://watched", watchers=[AssetWatcher(name="trainjobs", trigger=TRIGGER)])],
    catchup=False,
    is_paused_upon_creation=False,
)
def started_by_trainjobs():
    @task
    def names(triggering_asset_events=None):
        events = [event for events in triggering_asset_events.values() for event in events]
        return [event.extra["payload"]["reference"]["name"] for event in events]

    names()


from_trigger()
started_by_trainjobs()
