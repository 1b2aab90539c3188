"""Workspaces around a failing task: one for each value of `keep`, and one with an invalid size."""

from __future__ import annotations

from airflow.sdk import dag, task

from trainjob_airflow import Workspace


@dag(schedule=None, catchup=False)
def workspaces():
    @task
    def fail():
        raise ValueError("row 7")

    @task
    def work():
        pass

    for keep in ("on_failure", "always", "never"):
        with Workspace(size="1Gi", name=keep, keep=keep):
            fail.override(task_id=f"in_{keep}")() >> work.override(task_id=f"after_{keep}")()
    with Workspace(size="much", name="refused"):
        work.override(task_id="in_refused")()
    work.override(task_id="outside")()


workspaces()
