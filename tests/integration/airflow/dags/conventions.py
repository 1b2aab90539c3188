"""Arguments that users know from other operators: templates everywhere, exit codes that skip, no XComs, exit codes."""

from __future__ import annotations

import os

from airflow.sdk import dag

from trainjob_airflow import TrainJobOperator, Workspace


@dag(
    schedule=None,
    catchup=False,
    default_args={"retries": 0, "durable": True, "deferrable": os.environ.get("DEFERRABLE") == "1"},
    params={"connection": "kubernetes_default", "context": "", "size": "1Gi", "keep": "always", "limit": "5m"},
)
def conventions():
    where = {"kubernetes_conn_id": "{{ params.connection }}", "cluster_context": "{{ params.context }}"}
    with Workspace(size="{{ params.size }}", keep="{{ params.keep }}", **where) as workspace:
        for name, code, more in (
            ("skipped", 77, {"skip_on_exit_code": [99, 77]}),
            ("failed", 78, {"skip_on_exit_code": 77, "do_xcom_push": False}),
            ("quiet", 0, {"do_xcom_push": False}),
            ("trained", 0, {"queue_timeout": "{{ params.limit }}", "interruption_retries": "{{ 1 + 1 }}"}),
        ):
            trainer = {"image": "busybox:1", "command": ["sh", "-c", f"echo code {code}; exit {code}"]}
            TrainJobOperator(task_id=name, trainer=trainer, workspace=workspace, **where, **more)


conventions()
