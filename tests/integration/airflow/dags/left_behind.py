"""A task that creates active TrainJobs with run keys of ended and of other callers; then a sweep."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta

from airflow.sdk import dag, task

from trainjob_airflow import TrainJobSweepOperator

NAMESPACE = os.environ.get("SWEEP_NAMESPACE", "default")


@dag(schedule=None, catchup=False)
def left_behind():
    @task
    def create_trainjobs(**context):
        from trainjob import CustomTrainerContainer, TrainJob, submit
        from trainjob_airflow.hooks.trainjob import TrainJobHook
        from trainjob_airflow.run_key import get_run_key

        def submit_job(key, **arguments):
            trainer = CustomTrainerContainer(image="busybox", command=("sleep", "600"))
            submit(cluster, TrainJob(trainer=trainer, **arguments), key, namespace=NAMESPACE)

        cluster, own_key = TrainJobHook().get_conn(), get_run_key(context)
        submit_job(own_key)
        submit_job(replace(own_key, task="kept"), on_kill="keep")
        submit_job(replace(own_key, task="sweep"))  # this task is active during the sweep
        submit_job(replace(own_key, task="of-a-deleted-run", run="a-deleted-run"))
        submit_job(replace(own_key, task="of-an-unknown-dag", workflow="unknown_dag"))
        submit_job(replace(own_key, task="of-another-airflow", origin="http://other.example"))
        submit_job(replace(own_key, task="of-another-engine", engine="kfp"))

    create_trainjobs() >> TrainJobSweepOperator(task_id="sweep", namespace=NAMESPACE, active_for=timedelta(0))


left_behind()
