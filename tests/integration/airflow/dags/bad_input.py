"""Tasks with errors that no retry can fix."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import dag

from trainjob_airflow import DeleteTrainJobOperator, SuspendTrainJobOperator, TrainJobOperator, Workspace

ECHO = {"image": "busybox", "command": ["echo", "never"]}
RETRIES = {"retries": 3, "retry_delay": timedelta(0)}


@dag(schedule=None, catchup=False, default_args=RETRIES)
def bad_input():
    TrainJobOperator(task_id="no_such_connection", trainer=ECHO, kubernetes_conn_id="nobody")
    TrainJobOperator(task_id="no_such_kubeconfig", trainer=ECHO, kubernetes_conn_id="lost")
    TrainJobOperator(task_id="wrong_token", trainer=ECHO, kubernetes_conn_id="expired")
    TrainJobOperator(task_id="no_permission", trainer=ECHO, kubernetes_conn_id="stranger")
    TrainJobOperator(task_id="no_such_runtime", trainer=ECHO, runtime="torch-distributet")
    TrainJobOperator(task_id="no_image_name", trainer={**ECHO, "image": "Not/A_Name"})
    TrainJobOperator(task_id="no_such_command", trainer={**ECHO, "command": ["no-such-program"]}, deferrable=False)
    TrainJobOperator(task_id="no_such_namespace", trainer=ECHO, namespace="nowhere")
    TrainJobOperator(task_id="undefined_name", trainer={**ECHO, "image": "{{ imagge }}"})
    TrainJobOperator(task_id="no_template", trainer={**ECHO, "image": "{{ 'a' "})
    TrainJobOperator(task_id="nonsense", trainer={**ECHO, "num_nodes": "{{ 'many' }}"})
    TrainJobOperator(task_id="no_such_file", manifest="nowhere.yaml")
    TrainJobOperator(task_id="no_manifest", manifest="nonsense.yaml")
    TrainJobOperator(task_id="unknown_field", manifest={**MANIFEST, "spec": {**MANIFEST["spec"], "trainr": {}}})
    TrainJobOperator.partial(task_id="mapped").expand(trainer=[{**ECHO, "image": "{{ imagge }}"}])
    SuspendTrainJobOperator(task_id="missing_job_to_suspend", name="nobody")
    DeleteTrainJobOperator(task_id="may_not_delete", name="nobody", kubernetes_conn_id="stranger")
    with Workspace(size="much"):
        TrainJobOperator(task_id="after_the_workspace", trainer=ECHO)


MANIFEST = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "spec": {"runtimeRef": {"name": "torch-distributed"}},
}


bad_input()
