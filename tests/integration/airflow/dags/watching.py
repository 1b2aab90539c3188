"""Sensors for TrainJobs with names from the run's conf, and for a TrainJob that a task creates."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import dag, task

from trainjob_airflow import TrainJobOperator, TrainJobSensor

NAME = "{{ dag_run.conf['name'] }}"
RETRIES = {"retries": 1, "retry_delay": timedelta(seconds=1)}


@dag(schedule=None, catchup=False)
def watching():
    train = TrainJobOperator(task_id="train", trainer={"image": "busybox", "command": ["true"]}, deferrable=False)
    key = {"workflow": "{{ dag.dag_id }}", "task": "train", "run": "{{ run_id }}"}

    @task
    def print_result(result):
        print("result:", result["phase"], result["job"], result["seconds"] is not None)

    by_run_key = TrainJobSensor(task_id="by_run_key", run_key=key, timeout=60)
    print_result(by_run_key.output)
    train >> by_run_key
    train >> TrainJobSensor(task_id="deferred", name=NAME, namespace="default", timeout=60)
    train >> TrainJobSensor(task_id="poked", name=f"{NAME}-p", mode="poke", poke_interval=0.5, timeout=60)
    train >> TrainJobSensor(task_id="again", name=f"{NAME}-r", mode="reschedule", poke_interval=1, timeout=60)
    train >> TrainJobSensor(task_id="failing", name=f"{NAME}-f", timeout=60, **RETRIES)
    TrainJobSensor(task_id="too_late", name=f"{NAME}-never", timeout=2, **RETRIES)
    TrainJobSensor(task_id="nonsense", name="{{ dag_run.conf.get('nothing') }}", timeout=60, **RETRIES)


watching()
