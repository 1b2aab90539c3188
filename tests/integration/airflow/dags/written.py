"""A TrainJob from a manifest in a file beside the DAG's file."""

from __future__ import annotations

from airflow.sdk import dag

from trainjob_airflow import TrainJobOperator


@dag(schedule=None, catchup=False, params={"nodes": 2})
def written():
    TrainJobOperator(task_id="train", manifest="nightly.yaml")


written()
