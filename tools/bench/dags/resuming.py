"""DAGs whose jobs end when a file appears, and whose tasks record when they resume."""

from __future__ import annotations

import time

from airflow.providers.cncf.kubernetes.operators.job import KubernetesJobOperator
from airflow.sdk import dag

from trainjob_airflow import TrainJobOperator

SCRIPT = "while [ ! -e {{ dag_run.conf['folder'] }}/{{ ti.map_index }} ]; do sleep 0.05; done"


class _TrainJob(TrainJobOperator):
    def execute_complete(self, context, event=None, **kept):
        context["ti"].xcom_push("back", time.time())
        return super().execute_complete(context, event, **kept)


class _Job(KubernetesJobOperator):
    def execute_complete(self, context, event, **more):
        context["ti"].xcom_push("back", time.time())
        return super().execute_complete(context, event, **more)


@dag(schedule=None, catchup=False)
def trainjobs():
    trainer = {"image": "busybox", "command": ["sh", "-c", SCRIPT]}
    _TrainJob.partial(task_id="wait", trainer=trainer).expand(runtime=["torch-distributed"] * 8)


@dag(schedule=None, catchup=False)
def jobs():
    _Job.partial(
        task_id="wait",
        image="busybox",
        cmds=["sh", "-c", SCRIPT],
        namespace="default",
        deferrable=True,
        wait_until_job_complete=True,
        get_logs=False,
        backoff_limit=0,
    ).expand(name=[f"wait-{n}" for n in range(8)])


trainjobs()
jobs()
