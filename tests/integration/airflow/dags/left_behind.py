"""A task that leaves running TrainJobs behind, its own and those of others; then a sweep."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta

from airflow.sdk import dag, task

from trainjob_airflow import TrainJobSweepOperator

NAMESPACE = os.environ.get("LEFT_BEHIND_IN", "default")


@dag(schedule=None, catchup=False)
def left_behind():
    @task
    def create_trainjobs(**context):
        from trainjob import CustomTrainerContainer, TrainJob, submit
        from trainjob_airflow.hooks.trainjob import TrainJobHook
        from trainjob_airflow.run_key import get_run_key

        def work(key, **more):
            trainer = CustomTrainerContainer(image="busybox", command=("sleep", "600"))
            submit(cluster, TrainJob(trainer=trainer, **more), key, namespace=NAMESPACE)

        cluster, mine = TrainJobHook().get_conn(), get_run_key(context)
        work(mine)
        work(replace(mine, task="kept-by-wish"), on_kill="keep")
        work(replace(mine, task="sweep"))  # which will be running
        work(replace(mine, task="gone", run="a-run-that-was-deleted"))
        work(replace(mine, task="of-an-unknown-dag", workflow="nobodys"))
        work(replace(mine, task="of-another-airflow", origin="http://other.example"))
        work(replace(mine, task="of-another-engine", engine="kfp"))

    create_trainjobs() >> TrainJobSweepOperator(task_id="sweep", namespace=NAMESPACE, active_for=timedelta(0))


left_behind()
