"""DAG that deletes TrainJobs which are no longer needed, every 15 minutes.

A deployment uses it with one file in its DAG folder, which has one line: `from trainjob_airflow.sweep_dag import dag`.
It sweeps the connections and namespaces of the option `[trainjob] page_connections`, each with a task of its own.
Finished TrainJobs without a time to live of their own are retained for a week.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from airflow.sdk import DAG

from trainjob_airflow.operators.sweep import TrainJobSweepOperator
from trainjob_airflow.plugins.job_sources import list_job_sources

__all__ = ["dag"]

with DAG(
    "trainjob_sweep",
    description="Deletes TrainJobs that are no longer needed.",
    schedule=timedelta(minutes=15),
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    tags=["trainjob"],
    doc_md=__doc__,
) as dag:
    TrainJobSweepOperator.partial(
        task_id="sweep",
        finished_for=timedelta(days=7),
        retries=2,
        map_index_template="{{ task.kubernetes_conn_id }} {{ task.namespace }}",
    ).expand_kwargs(
        [{"kubernetes_conn_id": source.connection, "namespace": source.namespace} for source in list_job_sources()]
    )
