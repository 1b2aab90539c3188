"""Tasks whose commands are in the run's conf, as `script`."""

from __future__ import annotations

import time
from datetime import timedelta

from airflow.sdk import Asset, BaseOperatorLink, dag

from trainjob_airflow import TrainJobOperator

TRAINER = {"image": "busybox", "command": ["sh", "-c", "{{ dag_run.conf['script'] }}"]}
RETRIES = {"retries": 1, "retry_delay": timedelta(seconds=1)}


@dag(schedule=None, catchup=False)
def visible():
    TrainJobOperator(task_id="train", trainer=TRAINER, outlets=[Asset("x-trainjob://visible")], **RETRIES)


@dag(schedule=None, catchup=False)
def held():
    TrainJobOperator(task_id="train", trainer=TRAINER, deferrable=False, **RETRIES)


@dag(schedule=None, catchup=False)
def twenty():
    TrainJobOperator.partial(task_id="train", runtime="torch-distributed").expand(
        trainer=[{"image": "busybox", "command": ["sh", "-c", f"sleep 1; echo {n}"]} for n in range(20)]
    )


class _SlowLink(BaseOperatorLink):
    """A link that delays the worker's end after the deferral, as uploading a long log does."""

    name = "Slow"

    def get_link(self, operator, *, ti_key):
        time.sleep(4)
        return ""


class _SlowResumeOperator(TrainJobOperator):
    def _set_links(self, reference):
        super()._set_links(reference)
        self.operator_extra_links = [_SlowLink()]

    def execute_complete(self, context, event=None, **kept):
        time.sleep(6)  # so that the first worker ends while the task is running again
        return super().execute_complete(context, event, **kept)


@dag(schedule=None, catchup=False)
def slow_resume():
    _SlowResumeOperator(task_id="train", trainer={"image": "busybox", "command": ["sleep", "3"]})


visible()
held()
twenty()
slow_resume()
