"""DAGs in which one task's job prints many lines at once, and other jobs print one at their end.

Another task measures their triggerer.
"""

from __future__ import annotations

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import BaseOperator, dag
from flood_triggers import LoopMonitorTrigger, TimedPodTrigger, TimedTrainJobTrigger

from trainjob_airflow import TrainJobOperator

QUIET_TASKS = 20
GATE = "until [ -e {{ dag_run.conf['folder'] }}/%s ]; do sleep 0.05; done"
# An empty log is read three times, because an empty response may also be an error.
QUIET = GATE + "; echo done"
FLOOD = GATE % "flood" + "; seq -f '%0{{ dag_run.conf['width'] }}.0f' {{ dag_run.conf['lines'] }}"


class LoopMonitorOperator(BaseOperator):
    """Operator that returns the measurements of the triggerer's event loop."""

    def execute(self, context):
        self.defer(trigger=LoopMonitorTrigger(context["dag_run"].conf["folder"]), method_name="return_measurements")

    def return_measurements(self, context, event):
        return event


class _Job(TrainJobOperator):
    def defer(self, *, trigger, **more):
        super().defer(trigger=TimedTrainJobTrigger(**trigger.serialize()[1]), **more)

    def execute_complete(self, context, event=None, **kept):
        context["ti"].xcom_push("fired", event["fired"])
        return super().execute_complete(context, event, **kept)


class _Pod(KubernetesPodOperator):
    def defer(self, *, trigger, **more):
        super().defer(trigger=TimedPodTrigger(**trigger.serialize()[1]), **more)

    def trigger_reentry(self, context, event):
        context["ti"].xcom_push("fired", event["fired"])
        return super().trigger_reentry(context, event)


def _job_arguments(script, **more):
    return {"trainer": {"image": "busybox", "command": ["sh", "-c", script]}, **more}


@dag(schedule=None, catchup=False)
def flooding_jobs():
    LoopMonitorOperator(task_id="watch")
    _Job(task_id="flood", **_job_arguments(FLOOD))
    _Job.partial(task_id="quiet", **_job_arguments(QUIET % "{{ ti.map_index }}")).expand(
        runtime=["torch-distributed"] * QUIET_TASKS
    )


def _pod_arguments(script):
    return {
        "image": "busybox",
        "cmds": ["sh", "-c", script],
        "namespace": "default",
        "deferrable": True,
        "on_finish_action": "keep_pod",
    }


@dag(schedule=None, catchup=False)
def flooding_pods():
    LoopMonitorOperator(task_id="watch")
    _Pod(task_id="flood", name="flood", **_pod_arguments(FLOOD))
    _Pod.partial(task_id="quiet", **_pod_arguments(QUIET % "{{ ti.map_index }}")).expand(
        name=[f"quiet-{n}" for n in range(QUIET_TASKS)]
    )


flooding_jobs()
flooding_pods()
