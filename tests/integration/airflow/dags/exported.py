"""Exports of a checkpoint that another DAG run has trained; the variable TRAINED_FOLDER names the workspace."""

import os

from airflow.sdk import DAG

from trainjob import WorkspaceVolume
from trainjob_airflow import ExportModelOperator

workspace = WorkspaceVolume(node_path=os.environ.get("TRAINED_FOLDER", "/nowhere"))

with DAG("exported", schedule=None, default_args={"retries": 0}):
    for task, more in {"own": {}, "linked": {"after_jobs": ["tune-11111111"]}, "anyone": {"any_run": True}}.items():
        ExportModelOperator(task_id=task, workspace=workspace, destination=f"/workspace/{task}", **more)
